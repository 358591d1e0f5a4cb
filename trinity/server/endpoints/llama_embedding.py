"""llama.cpp's own embeddings: POST /embedding and /embeddings."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from trinity.server.endpoint import ASGI, Call, Endpoint
from trinity.server.endpoints.embeddings import EmbeddingsRequest
from trinity.server.endpoints.vectors import LIST, Text, vectors, with_list, written
from trinity.server.errors import LLAMA, ApiError
from trinity.server.schemas import Body, converted

LARGEST = 32760  # to which llama.cpp scales the largest value with embd_normalize 0


class LlamaEmbeddingRequest(Body):
    """A text or several, as in /v1/embeddings, under either name.

    ``embd_normalize`` is the norm by which a vector is divided: 1 taxicab, 2 Euclidean, p above 2
    the p-norm, -1 none. 0 scales the vector so that its largest absolute value is 32760.
    """

    content: Any = None
    input: Any = None
    model: str | None = None
    embd_normalize: Annotated[int, Meta(ge=-1, le=100)] | None = None


class LlamaEmbedding(msgspec.Struct):
    """The vectors of a text: one, since tokens are always pooled."""

    index: int
    embedding: list[list[float]]


async def embedding(call: Call[LlamaEmbeddingRequest]) -> ASGI:
    """The vectors of texts."""
    body = call.body
    norm = 2 if body.embd_normalize is None else body.embd_normalize
    name = "input" if body.content is None else "content"
    given = getattr(body, name)
    if given is None:
        raise ApiError(400, "content is missing: give a text or several", "content")

    def read() -> list[Text]:
        return converted(call.ignored, {"input": given}, EmbeddingsRequest, "").texts()

    texts = await call.run(read)
    normalize = None if norm >= 0 else False
    embedded = await vectors(call, body.model, texts, param=name, normalize=normalize)
    rows = await written(call, await call.run(divided, embedded.rows, norm))
    parts = (LlamaEmbedding(number, [row]) for number, row in enumerate(rows))
    return await call.run(with_list, LIST, parts)


def divided(rows: NDArray[np.float32], norm: int) -> NDArray[np.float32]:
    """Rows (n, size) divided by another norm than 2; see ``LlamaEmbeddingRequest``."""
    if norm in (-1, 2):
        return rows
    sizes = np.abs(rows)
    if norm == 0:
        lengths = sizes.max(axis=1, keepdims=True) / LARGEST
    else:
        lengths = (sizes.astype(np.float64) ** norm).sum(axis=1, keepdims=True) ** (1 / norm)
    return (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, embedding, "The vectors of texts, in llama.cpp's form.",
        body=LlamaEmbeddingRequest, answer=list[LlamaEmbedding], family=LLAMA,
    )
    for path in ("/embedding", "/embeddings")
)  # fmt: skip
