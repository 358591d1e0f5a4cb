"""Embeddings for all APIs, a few texts at a time, so that other clients get their turn."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from trinity.errors import ContextLengthError, InputError
from trinity.model import Model
from trinity.runtime.texts import Texts
from trinity.server.endpoint import Call, Document
from trinity.server.endpoints.llama_completion import mixed_ids
from trinity.server.errors import ApiError
from trinity.server.schemas import encode

MOST_TEXTS = 2048  # of one request, as in OpenAI's API; more while the vectors are small
MOST_NUMBERS = 4 << 20  # numbers of a response with more texts, which has about 80 MB
AT_ONCE = 16

log = logging.getLogger("trinity.server")

Text = str | Sequence[int | str]  # a text, or ids and texts in turn


@dataclass(frozen=True, slots=True)
class Vectors:
    """``rows`` (n_texts, dimensions), the model's name, all texts' tokens, which texts were cut."""

    name: str
    rows: NDArray[np.float32]
    tokens: int
    cut: tuple[int, ...] = ()


async def vectors(
    call: Call[Any], name: str | None, texts: Sequence[Text], *, param: str,
    dimensions: int | None = None, priority: int = 0, truncate: bool = True,
    prompt_names: Sequence[str] = (), normalize: bool | None = None,
) -> Vectors:  # fmt: skip
    """Embed texts; ``dimensions`` keeps the first ones and normalizes again.

    ``normalize`` as for ``Model.embed``.

    ``param`` is the parameter with the texts. ``truncate``: texts that are too long are cut, with a
    warning in the log, instead of refused. ``prompt_names``: the first of the model's prompts among
    these precedes each text. Raises: ApiError, ContextLengthError.
    """
    service = call.service
    lease = await call.lease(name)
    with lease as model:
        size = model.embedding_size
        allowed = max(MOST_TEXTS, MOST_NUMBERS // size)
        if not 1 <= len(texts) <= allowed:
            raise ApiError(
                400, f"{param} has {len(texts)} texts; 1 to {allowed} are allowed", param
            )
        if dimensions is not None and dimensions > size:
            raise ApiError(
                400, f"dimensions is {dimensions}; the model's vectors have {size}", "dimensions"
            )
        count, most = min(len(texts), AT_ONCE), service.settings.max_queue
        with lease.entering(call.caller.client, count, most):
            whole = await call.run(_read, model, texts, param, prompt_names, truncate)
        if whole.cut:
            log.warning("%s: %s", lease.name, model.embedder.cut_notice(whole.cut, len(texts)))
        lora = lease.lora_of(call.caller.owner)
        own_priority = call.caller.priority(call.ignored, priority)
        rows = np.empty((len(texts), size), np.float32)
        for start in range(0, len(texts), AT_ONCE):
            part = whole._replace(rows=whole.rows[start : start + AT_ONCE])
            rows[start : start + AT_ONCE] = await model.embedder.aembed_texts(
                part, pooling=service.settings.pooling, normalize=normalize, lora=lora,
                priority=own_priority, client=call.caller.client,
            )  # fmt: skip
            service.metrics.evaluated(lease.name, sum(map(len, part.rows)))
    if dimensions is not None:
        rows = rows[:, :dimensions]
        if normalize is not False:
            rows = await call.run(unit, rows)
    return Vectors(lease.name, rows, sum(map(len, whole.rows)), whole.cut)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide each row by its Euclidean length; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True).astype(np.float32)
    divided = rows.copy()
    np.divide(rows, lengths, out=divided, where=lengths != 0)
    return divided


async def written(call: Call[Any], rows: NDArray[np.float32]) -> list[Any]:
    """Encode each vector as JSON, one after the other in a thread.

    Encoding all at once would block the event loop.
    """
    return await call.run(lambda: [msgspec.Raw(encode(row.tolist())) for row in rows])


# In the place of a list, which ``with_list`` writes; no JSON text contains this byte.
LIST: Any = msgspec.Raw(b"\0")


def with_list(answer: object, parts: Iterable[object]) -> Document:
    """The JSON document of ``answer`` with a list of ``parts`` in the place of ``LIST``.

    Encoding many vectors together would hold the interpreter's lock, joining does not. Call it in
    a thread.
    """
    begin, _, end = encode(answer).partition(b"\0")
    listed = b",".join(map(encode, parts))
    return Document(b"".join((begin, b"[", listed, b"]", end)), "application/json")


def _read(
    model: Model, texts: Sequence[Text], param: str, prompt_names: Sequence[str], truncate: bool
) -> Texts:
    """The tokens of all texts. Raises: as ``vectors``."""
    given: list[str | list[int]] = []
    for text in texts:
        given.append(text if isinstance(text, str) else mixed_ids(model, text))
    name = next((one for one in prompt_names if one in model.embedder.rules.prompts), None)
    try:
        return model.embedder.read_texts(given, prompt_name=name, truncate=truncate)
    except ContextLengthError:
        raise
    except InputError as error:
        raise ApiError(400, f"{param}: {error}", param) from error
