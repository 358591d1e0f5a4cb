"""OpenAI's embeddings: POST /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.vectors import Text, vectors, written
from trinity.server.errors import ApiError
from trinity.server.schemas import Body

Token = Annotated[int, Meta(ge=0)]


class EmbeddingsRequest(Body):
    """A text or several, or the token ids of one or of several.

    ``dimensions`` cuts vectors, which then get length 1 again. ``user`` changes nothing.
    """

    input: str | Annotated[list[str | Token | list[Token]], Meta(min_length=1)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None

    def texts(self) -> list[Text]:
        """Each text, or its token ids. Raises: ApiError where kinds are mixed."""
        given = self.input
        if isinstance(given, str):
            return [given]
        tokens = [one for one in given if isinstance(one, int)]
        if len(tokens) == len(given):
            return [tokens]
        if tokens or len({type(one) for one in given}) > 1:
            raise ApiError(400, "input mixes texts and token ids; send one kind", "input")
        return [one for one in given if not isinstance(one, int)]


class Embedding(msgspec.Struct):
    """The vector of a text: numbers, or base64 of float32 values in little-endian order."""

    embedding: list[float] | str
    index: int
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(msgspec.Struct):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct):
    """The vectors of all texts, in their order."""

    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


async def embeddings(call: Call[EmbeddingsRequest]) -> ASGI:
    """The vectors of texts."""
    body = call.body
    found = await vectors(
        call.service, body.model, body.texts(), param="input", dimensions=body.dimensions
    )
    if body.encoding_format == "base64":
        texts = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in found.rows]
    else:
        texts = await written(found.rows)
    data = [Embedding(text, number) for number, text in enumerate(texts)]
    return Json(Embeddings(data, found.name, EmbeddingUsage(found.tokens, found.tokens)))


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/embeddings", embeddings,
        "The vectors of texts: hidden states behind the output norm, pooled, of length 1.",
        body=EmbeddingsRequest, answer=Embeddings,
    ),
)  # fmt: skip
