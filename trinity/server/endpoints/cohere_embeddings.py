"""Cohere's embeddings: POST /v2/embed."""

from __future__ import annotations

import base64
import secrets
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType
from numpy.typing import NDArray

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.messages import TextPart
from trinity.server.endpoints.vectors import MOST_TEXTS, vectors, written
from trinity.server.errors import ApiError
from trinity.server.schemas import Body

# Names of the prompts that models in sentence-transformers' form have for each kind of input.
PROMPTS = {
    "search_query": ("query", "search_query", "Retrieval-query"),
    "search_document": ("document", "search_document", "passage", "Retrieval-document"),
    "classification": ("classification", "Classification"),
    "clustering": ("clustering", "Clustering"),
    "image": (),
}
Form = Literal["float", "base64", "binary", "ubinary", "int8", "uint8"]


class EmbedInput(Body):
    """A text in the form that also allows images, which are not supported."""

    content: Annotated[list[TextPart], Meta(min_length=1)]


class CohereEmbedRequest(Body):
    """The body of Cohere's POST /v2/embed: ``texts`` or ``inputs``.

    ``input_type`` selects one of the model's prompts, if the model has one for it.
    """

    model: str | None = None
    texts: Annotated[list[str], Meta(min_length=1, max_length=MOST_TEXTS)] | None = None
    inputs: Annotated[list[EmbedInput], Meta(min_length=1, max_length=MOST_TEXTS)] | None = None
    images: list[str] | None = None
    input_type: (
        Literal["search_query", "search_document", "classification", "clustering", "image"] | None
    ) = None
    embedding_types: list[Form] | None = None
    output_dimension: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None

    def given(self) -> list[str]:
        """The texts. Raises: ApiError."""
        if self.images:
            raise ApiError(400, "images: images cannot be embedded", "images")
        if (self.texts is None) == (self.inputs is None):
            raise ApiError(400, "the request needs either texts or inputs", "texts")
        texts = self.texts
        if texts is None:
            texts = ["".join(part.text for part in one.content) for one in self.inputs or ()]
        for number, text in enumerate(texts):
            if not text:
                raise ApiError(400, f"texts[{number}] is empty", f"texts[{number}]")
        return texts

    def forms(self) -> list[Form]:
        """The forms of the vectors. Raises: ApiError for what would give other vectors."""
        if self.truncate == "START":
            raise ApiError(400, "truncate: START is not supported; use END or NONE", "truncate")
        if self.max_tokens is not None:
            told = "max_tokens is not supported: a text has as many tokens as the model takes"
            raise ApiError(400, told, "max_tokens")
        forms: list[Form] = list(dict.fromkeys(self.embedding_types or ("float",)))
        for form in forms:
            if form in ("int8", "uint8"):
                told = f"embedding_types: {form} is not supported; use float, base64 or binary"
                raise ApiError(400, told, "embedding_types")
        return forms


class EmbeddingsByType(msgspec.Struct, rename={"floats": "float"}):
    """The vectors of all texts in each form that the request names."""

    floats: list[list[float]] | UnsetType = UNSET
    base64: list[str] | UnsetType = UNSET
    binary: list[list[int]] | UnsetType = UNSET
    ubinary: list[list[int]] | UnsetType = UNSET


class BilledUnits(msgspec.Struct):
    """Tokens of all texts."""

    input_tokens: int


class EmbedMeta(msgspec.Struct):
    """The version of the API, and what was counted."""

    billed_units: BilledUnits
    api_version: dict[str, str]


class Embedded(msgspec.Struct):
    """The vectors in Cohere's form."""

    id: str
    embeddings: EmbeddingsByType
    texts: list[str]
    meta: EmbedMeta
    response_type: Literal["embeddings_by_type"] = "embeddings_by_type"


async def embed(call: Call[CohereEmbedRequest]) -> ASGI:
    """The vectors of texts, in several forms."""
    body = call.body
    texts, forms = body.given(), body.forms()
    names = PROMPTS[body.input_type] if body.input_type is not None else ()
    embedded = await vectors(
        call, body.model, texts, param="texts", dimensions=body.output_dimension,
        truncate=body.truncate != "NONE", prompt_names=names,
    )  # fmt: skip
    rows: Any = embedded.rows
    found = EmbeddingsByType()
    for form in forms:
        if form == "float":
            found.floats = await written(call, rows)
        elif form == "base64":
            found.base64 = await call.run(encoded, rows)
        else:
            setattr(found, form, await call.run(bits, rows, form == "ubinary"))
    meta = EmbedMeta(BilledUnits(embedded.tokens), {"version": "2"})
    return await call.run(Json, Embedded(secrets.token_hex(16), found, texts, meta))


def encoded(rows: NDArray[np.float32]) -> list[str]:
    """Each vector's float32 values in little-endian order, in base64."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]


def bits(rows: NDArray[np.float32], unsigned: bool) -> list[list[int]]:
    """Each vector's signs, eight in a byte, the first one highest; signed bytes are 128 less."""
    packed = np.packbits(rows > 0, axis=1)
    numbers = packed if unsigned else packed.astype(np.int16) - 128
    listed: list[list[int]] = numbers.tolist()
    return listed


ENDPOINTS = (
    Endpoint(
        "POST", "/v2/embed", embed, "Embeddings in Cohere's form.",
        body=CohereEmbedRequest, answer=Embedded,
    ),
)  # fmt: skip
