"""Ollama's embeddings: POST /api/embed and the older /api/embeddings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.ollama.answer import NANO
from trinity.server.endpoints.ollama.errors import OLLAMA
from trinity.server.endpoints.ollama.options import RUNNER, Asking
from trinity.server.endpoints.vectors import LIST, unit, vectors, with_list, written
from trinity.server.ignored import Ignored

if TYPE_CHECKING:
    from trinity.model import Model


class EmbedRequest(Asking, kw_only=True):
    """The body of POST /api/embed."""

    input: str | list[str] | None = None
    truncate: bool | None = None  # false: refuse a text that is too long instead of cutting it
    dimensions: int | None = None


class OllamaEmbeddingsRequest(Asking, kw_only=True):
    """The body of POST /api/embeddings."""

    prompt: str = ""
    truncate: bool | None = None


class EmbedAnswer(msgspec.Struct):
    """Embeddings of length 1, in the order of the texts; durations are in nanoseconds."""

    model: str
    embeddings: list[Any]
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET


class EmbeddingsAnswer(msgspec.Struct):
    """The embedding of a text; empty without a text."""

    embedding: Any


async def embed(call: Call[EmbedRequest]) -> ASGI:
    """Embed texts; without texts only load the model."""
    began, body = time.perf_counter(), call.body
    texts = [body.input] if isinstance(body.input, str) else body.input or []
    if body.input == "":
        texts = []
    name = body.served(call.ignored, call.service.models)
    dimensions = body.dimensions
    with await body.lease(call, name) as model:
        loaded = time.perf_counter()
        check(call.ignored, body, model)
        if dimensions is not None and not 0 < dimensions < model.embedding_size:
            dimensions = None  # as in Ollama, whose clients send 0
    if not texts:
        body.keep(call, name)
        return Json(EmbedAnswer(body.shown, []))
    embedded = await vectors(
        call, name, texts, param="input", dimensions=dimensions, truncate=body.truncate is not False
    )
    body.keep(call, name)
    rows = await written(call, await call.run(unit, embedded.rows))
    spent, loading = time.perf_counter() - began, loaded - began
    answer = EmbedAnswer(body.shown, LIST, int(spent * NANO), int(loading * NANO), embedded.tokens)
    return await call.run(with_list, answer, rows)


async def embeddings(call: Call[OllamaEmbeddingsRequest]) -> ASGI:
    """Embed a text."""
    body = call.body
    name = body.served(call.ignored, call.service.models)
    with await body.lease(call, name) as model:
        check(call.ignored, body, model)
    rows: list[Any] = [[]]
    if body.prompt:
        embedded = await vectors(
            call, name, [body.prompt], param="prompt", truncate=body.truncate is not False
        )
        rows = await written(call, embedded.rows)
    body.keep(call, name)
    return Json(EmbeddingsAnswer(rows[0]))


def check(ignored: Ignored, body: Asking, model: Model) -> None:
    """Note options as ignored: none affects embeddings, except a context that the model has."""
    if body.options is None:
        return
    body.options.check_context(ignored, model)
    for name in body.options.__struct_fields__:
        if name not in RUNNER and getattr(body.options, name) is not None:
            ignored.add(f"options.{name}")


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
