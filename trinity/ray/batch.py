"""Answers the rows of a batch by a pool of actors. Each has the model and runs several rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from trinity.ray.cluster import Replicas, connected
from trinity.ray.cores import pin
from trinity.server.batches.batch import here
from trinity.server.batches.batch_answer import Ask
from trinity.server.batches.batch_rows import Row


class Worker:
    """An actor that has the server's application. The model is loaded for the first row."""

    def __init__(
        self, ref: str, at_once: int, cores: int, loading: Mapping[str, Any],
        defaults: Mapping[str, Any], speech_ref: str | None,
    ) -> None:  # fmt: skip
        pin(cores)
        self._asking = here(
            ref, at_once=at_once, loading={"threads": cores, **loading}, defaults=defaults,
            say=lambda line: None, speech_ref=speech_ref,
        )  # fmt: skip
        self._entered = AsyncExitStack()
        self._loading = asyncio.Lock()
        self._ask: Ask | None = None

    async def load(self) -> Ask:
        """Load the model, once. Raises: errors of loading."""
        async with self._loading:
            if self._ask is None:
                self._ask = await self._entered.enter_async_context(self._asking)
        return self._ask

    async def ready(self) -> None:
        """Return when the model is loaded. Raises: errors of loading."""
        await self.load()

    async def answer(self, row: Row) -> tuple[int, Any] | None:
        """Return the status and the body of the response to a row."""
        return await (await self.load())(row)


@asynccontextmanager
async def on_ray(
    ref: str, replicas: Replicas, *, at_once: int, loading: Mapping[str, Any],
    defaults: Mapping[str, Any], say: Callable[[str], None], speech_ref: str | None = None,
) -> AsyncIterator[Ask]:  # fmt: skip
    """Answer rows by ``replicas``, each of which runs ``at_once`` rows together.

    A replica that is lost starts again and repeats the rows that it was running.
    Raises: InputError without a cluster; errors of loading.
    """
    with connected(replicas):
        import ray

        actor = ray.remote(Worker).options(
            num_cpus=replicas.cores, max_concurrency=at_once + 1, max_restarts=-1,
            max_task_retries=-1,
        )  # fmt: skip
        workers = [
            actor.remote(ref, at_once, replicas.cores, dict(loading), dict(defaults), speech_ref)
            for _ in range(replicas.count)
        ]
        running = dict.fromkeys(workers, 0)

        async def ask(row: Row) -> tuple[int, Any] | None:
            worker = min(running, key=lambda worker: running[worker])
            running[worker] += 1
            try:
                outcome: tuple[int, Any] | None = await worker.answer.remote(row)
                return outcome
            finally:
                running[worker] -= 1

        try:
            await workers[0].ready.remote()
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        say(f"{replicas.count} replicas of {replicas.cores} cores")
        yield ask
