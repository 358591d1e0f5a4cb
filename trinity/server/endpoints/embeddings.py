"""OpenAI's embeddings: POST /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trinity.server.endpoint import ASGI, Call, Endpoint
from trinity.server.endpoints.messages import TextPart
from trinity.server.endpoints.sampling import Priority, within
from trinity.server.endpoints.vectors import LIST, Text, vectors, with_list, written
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable
from trinity.server.schemas import Body

Token = Annotated[int, Meta(ge=0)]


class TextObject(Body):
    """A text in a form that also allows media, which are not supported."""

    prompt_string: str | None = None
    content: list[TextPart] | None = None
    multimodal_data: list[str] | None = None

    def text(self) -> str:
        """The text. Raises: ApiError for none and for two, and for images."""
        if self.multimodal_data:
            raise ApiError(400, "input: images and audio cannot be embedded", "input")
        if self.content is None and self.prompt_string is not None:
            return self.prompt_string
        if self.content is None or self.prompt_string is not None:
            raise ApiError(400, "input: an object needs either prompt_string or content", "input")
        return "".join(part.text for part in self.content)


class EmbeddingsRequest(Body):
    """A text or several, or the token ids of one or of several; in llama.cpp's forms, too.

    A list of ids and texts is one text; one with lists or objects, or of texts alone, is several.
    ``dimensions`` cuts vectors, which then get length 1 again. ``priority`` is as of answers.
    ``normalize`` and the fields after it are vLLM's; ``user`` changes nothing.
    """

    input: (
        str
        | TextObject
        | Annotated[list[str | Token | TextObject | list[str | Token]], Meta(min_length=1)]
    )
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    priority: Priority | None = None
    normalize: bool | None = None
    use_activation: bool | None = None  # the newer name of normalize
    embed_dtype: str | None = None
    endianness: str | None = None
    add_special_tokens: bool | None = None
    user: Ignorable[str | None] = None

    def check(self) -> None:
        """Raise ApiError for what would give other vectors than requested."""
        if self.add_special_tokens is False:
            raise ApiError(
                400,
                "add_special_tokens: texts get the tokens that the model's file asks for; to give "
                "others, send token ids",
                "add_special_tokens",
            )
        if self.encoding_format == "base64":
            for name, usual in (("embed_dtype", "float32"), ("endianness", "little")):
                if getattr(self, name) not in (None, "auto", "native", usual):
                    raise ApiError(400, f"{name} must be {usual} with base64", name)

    def texts(self) -> list[Text]:
        """Each text, or its token ids and texts in turn. Raises: ApiError."""
        if isinstance(self.input, str | TextObject):
            given: list[str | int | TextObject | list[str | int]] = [self.input]
        else:
            given = self.input
        if all(isinstance(part, str) for part in given) or any(
            isinstance(part, list | TextObject) for part in given
        ):
            texts = [_text(part) for part in given]
            for number, text in enumerate(texts):
                if not text:  # OpenAI and llama.cpp refuse it too
                    raise ApiError(400, f"input: text {number} is empty", "input")
            return texts
        return [[part for part in given if isinstance(part, str | int)]]


def _text(part: str | int | TextObject | list[str | int]) -> Text:
    if isinstance(part, TextObject):
        return part.text()
    return [part] if isinstance(part, int) else part


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
    body.check()
    embedded = await vectors(
        call, body.model, await call.run(body.texts), param="input",
        dimensions=body.dimensions, priority=within(body.priority or 0),
        normalize=body.normalize if body.use_activation is None else body.use_activation,
    )  # fmt: skip
    if body.encoding_format == "base64":
        texts = await call.run(
            lambda: [
                base64.b64encode(row.astype("<f4").tobytes()).decode() for row in embedded.rows
            ]
        )
    else:
        texts = await written(call, embedded.rows)
    usage = EmbeddingUsage(embedded.tokens, embedded.tokens)
    parts = (Embedding(text, number) for number, text in enumerate(texts))
    return await call.run(with_list, Embeddings(LIST, embedded.name, usage), parts)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/embeddings", embeddings,
        "Embeddings of texts: pooled hidden states after the output norm, normalized to length 1.",
        body=EmbeddingsRequest, answer=Embeddings,
    ),
)  # fmt: skip
