"""Ollama's vectors: POST /api/embed and the older /api/embeddings."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.ollama.answer import NANO
from trinity.server.endpoints.ollama.errors import OLLAMA, known_name
from trinity.server.endpoints.ollama.options import Duration, check_keep_alive
from trinity.server.endpoints.vectors import vectors, written
from trinity.server.schemas import Body


class Embedding(Body, kw_only=True):
    """What both have in common. A text that does not fit the context is refused, never cut."""

    model: Annotated[str, Meta(min_length=1)]
    truncate: Literal[False] | None = None
    keep_alive: float | Duration | None = None


class EmbedRequest(Embedding, kw_only=True):
    """The body of POST /api/embed."""

    input: str | Annotated[list[str], Meta(min_length=1)]
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class OllamaEmbeddingsRequest(Embedding, kw_only=True):
    """The body of POST /api/embeddings."""

    prompt: str


class EmbedAnswer(msgspec.Struct):
    """Vectors of length 1, in the order of the texts; durations are in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    prompt_eval_count: int


class EmbeddingsAnswer(msgspec.Struct):
    """The vector of a text."""

    embedding: list[float]


async def embed(call: Call[EmbedRequest]) -> ASGI:
    """The vectors of texts."""
    began, body = time.perf_counter(), call.body
    check_keep_alive(body.keep_alive)
    texts = [body.input] if isinstance(body.input, str) else body.input
    name = known_name(call.service.models, body.model)
    found = await vectors(call.service, name, texts, param="input", dimensions=body.dimensions)
    spent = int((time.perf_counter() - began) * NANO)
    return Json(EmbedAnswer(body.model, await written(found.rows), spent, found.tokens))


async def embeddings(call: Call[OllamaEmbeddingsRequest]) -> ASGI:
    """The vector of a text."""
    body = call.body
    check_keep_alive(body.keep_alive)
    name = known_name(call.service.models, body.model)
    found = await vectors(call.service, name, [body.prompt], param="prompt")
    return Json(EmbeddingsAnswer((await written(found.rows))[0]))


ENDPOINTS = (
    Endpoint(
        "POST", "/api/embed", embed, "The vectors of texts.",
        body=EmbedRequest, answer=EmbedAnswer, family=OLLAMA,
    ),
    Endpoint(
        "POST", "/api/embeddings", embeddings, "The vector of a text.",
        body=OllamaEmbeddingsRequest, answer=EmbeddingsAnswer, family=OLLAMA,
    ),
)  # fmt: skip
