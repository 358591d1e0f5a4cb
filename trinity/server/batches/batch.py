"""Run a file of requests without a server: each row is a request to the application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from trinity.errors import InputError
from trinity.server.app import make_app
from trinity.server.batches.batch_answer import Ask, answer, answer_rows
from trinity.server.batches.batch_output import BatchOutput
from trinity.server.batches.batch_rows import Row
from trinity.server.batches.offline_rows import offline_rows
from trinity.server.model_refs import served_models, speech_of
from trinity.server.models import Models
from trinity.server.settings import ServerOptions

TELL_SECONDS = 2.0  # between lines of progress
Say = Callable[[str], None]


def run_batch(
    source: Path, out: Path, asking: AbstractAsyncContextManager[Ask], *, at_once: int, say: Say
) -> int:
    """Complete the rows of ``source`` that ``out`` lacks, and write the responses to ``out``.

    Up to ``at_once`` rows run at the same time, by the function that ``asking`` gives. It is
    entered only if rows are left. Returns: the number of errors in ``out``. Raises: InputError;
    errors of loading.
    """
    known = {row.custom_id for row in offline_rows(source)}
    if not known:
        raise InputError(f"{source}: the file has no rows")
    output = BatchOutput(out, known)
    try:
        if output.done:
            say(f"{out}: {len(output.done)} of {len(known)} rows have results already")
        left = (row for row in offline_rows(source) if row.custom_id not in output.done)
        if len(output.done) < len(known):
            asyncio.run(_answer_all(asking, left, output, len(known), at_once, say))
        return output.failed
    finally:
        output.close()


@asynccontextmanager
async def here(
    ref: str, *, at_once: int, loading: Mapping[str, Any], defaults: Mapping[str, Any], say: Say,
    speech_ref: str | None = None,
) -> AsyncIterator[Ask]:  # fmt: skip
    """Answer rows in this process by the model ``ref``, whatever name a row gives.

    ``speech_ref``: the model of rows of speech, loaded for the first of them. Raises: errors of
    loading.
    """
    models = Models(served_models([ref], loading, say), any_name=True)
    settings = ServerOptions(any_model_name=True, preload=False, max_queue=at_once)
    speech = None
    if speech_ref is not None:
        speech = speech_of(speech_ref, None, settings.max_audio_seconds, loading, say)
    app = make_app(models, settings, defaults=defaults, speech=speech)
    async with app.router.lifespan_context(app):
        await models.load_first()
        yield partial(answer, app)


async def _answer_all(
    asking: AbstractAsyncContextManager[Ask], rows: Iterator[Row], output: BatchOutput, count: int,
    at_once: int, say: Say,
) -> None:  # fmt: skip
    began, before = monotonic(), len(output.done)
    told = began

    async def say_how_far() -> None:
        nonlocal told
        now = monotonic()
        if now - told >= TELL_SECONDS or len(output.done) == count:
            told = now
            rate = (len(output.done) - before) / (now - began)
            say(f"{len(output.done)} of {count} rows, {rate:.3g} per second")

    async with asking as ask:
        await answer_rows(rows, output, at_once, ask, say_how_far)
