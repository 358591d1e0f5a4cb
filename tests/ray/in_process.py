"""An ingress and replicas in this process, without Ray, whose calls are tasks."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trinity.errors import TrinityError
from trinity.loading import chat_model
from trinity.ray import replica
from trinity.ray.calls import Generation
from trinity.ray.channel import LostConnectionError
from trinity.ray.remote import RemoteModel, RemoteThread
from trinity.runtime.generation import collect

SECONDS = 120  # after which a test that hangs fails
LOADING: dict[str, Any] = {"context_length": 256, "threads": 1, "batch_invariant": True}
PROMPT = "Prince Andrew looked at"


class TaskError(Exception):
    """As Ray's RayTaskError: ``cause`` is the error of the replica."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Handle:
    """As a DeploymentHandle. Calls go to the replicas one after the other."""

    def __init__(self, *replicas: replica.Replica) -> None:
        self.replicas, self.calls = replicas, list[Generation]()

    def options(self, **given: Any) -> Handle:
        return self

    def remote(self, call: Generation) -> asyncio.Task[None]:
        self.calls.append(pickle.loads(pickle.dumps(call)))
        chosen = self.replicas[len(self.calls) % len(self.replicas)]
        return asyncio.create_task(self._call(chosen, self.calls[-1]))

    async def _call(self, chosen: replica.Replica, call: Generation) -> None:
        try:
            await chosen.generate(call)
        except (TrinityError, LostConnectionError) as error:
            raise TaskError(error) from error


class replicas_of:  # noqa: N801
    """Two replicas of a model, which are not bound to cores."""

    def __init__(self, ref: str, **loading: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replica, "pin", lambda cores: frozenset())
            patch.setattr(replica, "settled", lambda loaded: loaded())
            self._made = [replica.Replica(ref, 1, {**LOADING, **loading}) for _ in range(2)]

    def __enter__(self) -> list[replica.Replica]:
        return self._made

    def __exit__(self, *exception: object) -> None:
        for one in self._made:
            one._model.close()


def run(
    test: Callable[[RemoteModel, Handle], Coroutine[Any, Any, None]], made: list[replica.Replica],
    ref: str = "", **more: Any,
) -> None:  # fmt: skip
    """Run a test with a model whose handle has ``made``, and end their connections."""

    async def whole() -> None:
        handle = Handle(*made)
        with RemoteModel(ref or chat_model(), handle, 256, 4, "127.0.0.1", **more) as model:
            try:
                await asyncio.wait_for(test(model, handle), SECONDS)
            finally:
                for one in made:
                    one._connections.close()
        await asyncio.sleep(0.01)  # connections end

    asyncio.run(whole())


def listener_of(model: RemoteModel) -> Any:
    thread = model.engine_thread
    assert isinstance(thread, RemoteThread)
    assert thread._listening is not None
    return thread._listening.result()


async def text_of(model: RemoteModel, prompt: Any = PROMPT, whole: bool = False, **o: Any) -> str:
    with await model.asubmit([prompt], whole=whole, **o) as answers:
        return collect([chunk async for _, chunk in answers]).text
