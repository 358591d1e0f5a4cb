"""A model whose steps replicas compute: tokenizer and templates are here, the weights there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.embeddings import Lora, TextEmbedder
from trinity.formats.configuration import check_is_model
from trinity.loading import open_weights
from trinity.model import Model
from trinity.model_defaults import checked_defaults
from trinity.models import find_architecture
from trinity.ray.calls import Generation, Resumption, prefixes_of
from trinity.runtime.generation import Chunk, Timings
from trinity.runtime.options import Request
from trinity.runtime.pooling import Pooling
from trinity.runtime.sampling.active_samplers import keeps_state
from trinity.runtime.scheduling.client import Client
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import Collector, Sink
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.runtime.texts import Pairs, Texts
from trinity.server.errors import ApiError
from trinity.tokenizers import tokenizer_from_metadata

ATTEMPTS = 20  # replicas lost one after the other without a new token between
ATTEMPT_SECONDS = 0.5


@dataclass
class EngineElsewhere:
    """Stands for the engines of the replicas: the part of ``Engine`` that a server reads."""

    config: ModelConfig
    context_length: int
    encodes: bool
    threads: int
    isa: str = "remote"
    adapters: tuple[tuple[str, float], ...] = ()
    limit = other_bytes = 0  # bytes of memory here

    @property
    def pool(self) -> EngineElsewhere:
        """This object, which has the pool's ``limit``."""
        return self

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> tuple[()]:
        """Return (). Raises ApiError if adapters are wanted."""
        if wanted:
            raise ApiError(400, "adapters are not supported by a server on Ray", "lora")
        return ()

    def close(self) -> None:
        """Nothing is open here."""


class RemoteThread(EngineThread):
    """Sends requests to replicas. It replaces the thread of an engine."""

    handle: Any  # a DeploymentHandle of Replica
    most_running: int
    running = 0

    def submit(self, *sequences: Any, client: str = "") -> None:
        """Start tasks of the running event loop that receive the responses."""
        self.check_open()
        for stream in sequences:
            # Serve's router identifies a call by an id in its context. Each call gets a context of
            # its own, because the calls of one request would share the id.
            stream.task = asyncio.get_running_loop().create_task(
                stream.receive(self, client), context=Context()
            )

    def cancel(self, *sequences: Any) -> None:
        """End responses that have not ended."""
        for stream in sequences:
            if stream.task is not None:
                stream.task.cancel()

    def stats(self) -> SchedulerStats:
        """Return this process's counts; other processes may use the same replicas."""
        running = min(self.running, self.most_running)
        return SchedulerStats(
            waiting=self.running - running, running=running, most_running=self.most_running
        )

    def close(self) -> None:
        """Take no more requests."""
        if not self.closed:
            self.closing = True
            self.finish()

    def finish(self) -> None:
        """Close the model's files."""
        self.release()
        self.closed = True


class RemoteStream:
    """A response of a replica. If the replica is lost, another one continues the response."""

    def __init__(self, ids: list[int], request: Request, sink: Sink) -> None:
        sampling = request.sampling
        if sampling.seed is None and sampling.temperature > 0:
            request = replace(request, sampling=replace(sampling, seed=secrets.randbits(31)))
        self.tokens = ids
        self.task: asyncio.Task[None] | None = None
        self._request, self._sink = request, sink
        self._resumption = Resumption(request)

    async def receive(self, thread: RemoteThread, client: str) -> None:
        """Pass the chunks of the response, or the error that ends it, to the sink."""
        thread.running += 1
        try:
            await self._receive(thread.handle, client)
        except asyncio.CancelledError:
            self._sink.put(Chunk("", finish_reason="cancelled", timings=Timings()))
        except Exception as error:
            self._sink.put(error)
        finally:
            thread.running -= 1

    async def _receive(self, handle: Any, client: str) -> None:
        from ray.exceptions import RayActorError, RayTaskError
        from ray.serve.exceptions import DeploymentUnavailableError

        handle = handle.options(stream=True, method_name="generate")
        whole = isinstance(self._sink, Collector)
        prefixes = prefixes_of(self.tokens, self._request.cache_salt)
        left = ATTEMPTS
        while True:
            request = self._resumption.again(can_resume)
            call = Generation(self.tokens, request, client, whole, prefixes)
            responses = handle.remote(call)
            try:
                async for received in responses:
                    chunk = self._resumption.new(received)
                    if chunk is not None:
                        left = ATTEMPTS
                        self._sink.put(chunk)
                        if chunk.finish_reason is not None:
                            return
            except RayTaskError as error:
                raise error.cause from None
            except (RayActorError, DeploymentUnavailableError) as error:
                left -= 1
                if not left:
                    raise ApiError(503, "replicas end before they answer") from error
                await asyncio.sleep(0 if left == ATTEMPTS - 1 else ATTEMPT_SECONDS)
            except asyncio.CancelledError:
                responses.cancel()
                raise


def can_resume(request: Request) -> bool:
    """Whether a response can continue after its tokens; if not, it is generated again."""
    return request.limits.logprobs is None and not keeps_state(request.sampling)


class RemoteClient(Client):
    """Makes the streams of a model's requests."""

    def _request_state(self, ids: list[int], request: Request, sink: Sink) -> Any:
        # Checks the request, so that a bad one is refused before its response begins.
        super()._request_state(ids, request, sink)
        return RemoteStream(ids, request, sink)


class RemoteEmbedder(TextEmbedder):
    """Reads texts here and computes their vectors and scores elsewhere."""

    handle: Any

    async def aembed_texts(
        self, texts: Texts, pooling: Pooling | None = None, normalize: bool | None = None, *,
        lora: Lora = None, priority: int = 0, client: str = "",
    ) -> NDArray[np.float32]:  # fmt: skip
        """As in ``TextEmbedder``."""
        return await self._call("embed", texts, pooling, normalize, lora, priority, client)

    async def arank_pairs(
        self, pairs: Pairs, *, lora: Lora = None, client: str = ""
    ) -> NDArray[np.float32]:
        """As in ``TextEmbedder``."""
        self._check_ranks()
        return await self._call("rank", pairs, lora, client)

    async def _call(self, name: str, *arguments: Any) -> NDArray[np.float32]:
        from ray.exceptions import RayActorError, RayTaskError

        for left in reversed(range(ATTEMPTS)):
            try:
                found: NDArray[np.float32] = await getattr(self.handle, name).remote(*arguments)
                return found
            except RayTaskError as error:
                raise error.cause from None
            except RayActorError:
                if not left:
                    raise
                await asyncio.sleep(ATTEMPT_SECONDS)
        raise AssertionError


class RemoteModel(Model):
    """A model of a server whose steps the replicas of ``handle`` compute.

    ``most_running``: the number of responses that they generate at the same time. It serves the
    methods that a server's endpoints call in the event loop.
    """

    def __init__(self, ref: str, handle: Any, context_length: int, most_running: int) -> None:
        provider = open_weights(ref)
        try:
            check_is_model(provider.metadata, provider.path)
            names = provider.tensor_names()
            encodes = find_architecture(provider.config.architecture, provider.path, names).encodes
            tokenizer = tokenizer_from_metadata(
                provider.metadata, checked_defaults(provider).end_ids, source=provider.path
            )
            engine: Any = EngineElsewhere(provider.config, context_length, encodes, 0)
            super().__init__(engine, tokenizer, provider)
            thread = RemoteThread(engine, release=provider.close, max_sequences=most_running)
            thread.handle, thread.most_running = handle, most_running
            self._engine_thread = thread
            self._client = RemoteClient(thread, tokenizer)
            embedder = RemoteEmbedder(self._client, tokenizer, self._chat, provider)
            embedder.handle = handle
            self._embedder = embedder
        except BaseException:
            provider.close()
            raise
