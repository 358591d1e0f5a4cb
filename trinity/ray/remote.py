"""A model whose steps replicas compute: tokenizer and templates are here, the weights there."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.embeddings import Lora, TextEmbedder
from trinity.formats.configuration import check_is_model
from trinity.formats.provider import WeightProvider
from trinity.loading import open_images, open_weights
from trinity.model import Model
from trinity.model_defaults import checked_defaults
from trinity.models import find_architecture
from trinity.options.adapter_files import adapter_scales
from trinity.ray.calls import Generation, Resumption, prefixes_of
from trinity.ray.channel import Listener, LostConnectionError
from trinity.runtime.generation import Chunk, Timings
from trinity.runtime.interface import PREFILL_CHUNK
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

if TYPE_CHECKING:
    from trinity.images.encoder import ImageEncoder

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
    adapters: tuple[tuple[str, float], ...] = ()  # paths and scales
    prefill_chunk: int = 0
    limit = other_bytes = 0  # bytes of memory here

    @property
    def pool(self) -> EngineElsewhere:
        """This object, which has the pool's ``limit``."""
        return self

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> tuple[float, ...]:
        """As in ``Engine``."""
        return adapter_scales([scale for _, scale in self.adapters], wanted)

    def close(self) -> None:
        """Nothing is open here."""


class RemoteThread(EngineThread):
    """Sends requests to replicas. It replaces the thread of an engine."""

    generate: Any  # the DeploymentHandle of Replica's method
    host: str  # of this process, to which replicas connect
    most_running: int
    running = 0
    _listening: asyncio.Task[Listener] | None = None
    _calls: set[asyncio.Future[Any]]

    def submit(self, *sequences: Any, client: str = "") -> None:
        """Start tasks of the running event loop that receive the responses."""
        self.check_open()
        for stream in sequences:
            # Serve's router identifies a call by an id in its context. Each call gets a context of
            # its own, because the calls of one request would share the id.
            stream.task = asyncio.get_running_loop().create_task(
                stream.receive(self, client), context=Context()
            )

    async def listening(self) -> Listener:
        """Return what receives the chunks."""
        if self._listening is None:
            self._listening, self._calls = asyncio.create_task(Listener.opened(self.host)), set()
        return await asyncio.shield(self._listening)

    def watch(self, response: Any, last: asyncio.Future[None]) -> None:
        """If a call fails, end ``last`` with the error."""

        def called(call: asyncio.Future[Any]) -> None:
            self._calls.discard(call)
            error = None if call.cancelled() else call.exception()
            if error is not None:
                settle(last, error)

        call = asyncio.ensure_future(response)
        self._calls.add(call)
        call.add_done_callback(called)

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
        if self._listening is not None and self._listening.done():
            self._listening.result().close()
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
        # Of the current call: its end, whether it has brought new chunks, and the last one.
        self._last: asyncio.Future[None]
        self._has_new = self._has_last = False

    async def receive(self, thread: RemoteThread, client: str) -> None:
        """Pass the chunks of the response, or the error that ends it, to the sink."""
        thread.running += 1
        try:
            await self._receive(thread, client)
        except asyncio.CancelledError:
            self._sink.put(Chunk("", finish_reason="cancelled", timings=Timings()))
        except Exception as error:
            self._sink.put(error)
        finally:
            thread.running -= 1

    async def _receive(self, thread: RemoteThread, client: str) -> None:
        """Call replicas until the last chunk is here. Raises: the response's error."""
        from ray.exceptions import RayActorError, RayTaskError
        from ray.serve.exceptions import DeploymentUnavailableError

        listener = await thread.listening()
        whole = isinstance(self._sink, Collector)
        prefixes = prefixes_of(self.tokens, self._request.cache_salt)
        left, reason = ATTEMPTS, ""
        while left:
            self._last, self._has_new = asyncio.get_running_loop().create_future(), False
            request = self._resumption.again(can_resume)
            number = listener.add(self)
            call = Generation(
                self.tokens, request, client, whole, prefixes, listener.address, number
            )
            response = thread.generate.remote(call)
            thread.watch(response, self._last)
            try:
                return await self._last
            except RayTaskError as error:
                if not isinstance(error.cause, LostConnectionError):
                    raise error.cause from None
                reason = str(error.cause)
            except (LostConnectionError, RayActorError, DeploymentUnavailableError):
                reason = "replicas end before they answer"
            finally:
                listener.remove(number)
                if not self._has_last:
                    response.cancel()
            left = ATTEMPTS if self._has_new else left - 1
            await asyncio.sleep(0 if left >= ATTEMPTS - 1 else ATTEMPT_SECONDS)
        raise ApiError(503, reason)

    def take(self, chunk: Chunk) -> None:
        """Pass on the part of a chunk that the client does not have yet."""
        new = self._resumption.new(chunk)
        if new is None:
            return
        self._has_new = True
        self._sink.put(new)
        if new.finish_reason is not None:
            self._has_last = True
            settle(self._last)

    def lost(self) -> None:
        """Continue elsewhere, because the replica's connection has ended."""
        settle(self._last, LostConnectionError("the replica's connection has ended"))


def settle(future: asyncio.Future[None], error: BaseException | None = None) -> None:
    """End a future, unless it has ended."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


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

    ``most_running``: the number of responses that they generate at the same time. ``host``: the
    address of this machine, to which they connect. ``adapters``: those that they load, with their
    scales. ``vision``: whether it reads images; ``mmproj``: the file of its vision tower. It
    serves the methods that a server's endpoints call in the event loop.
    """

    def __init__(
        self, ref: str, handle: Any, context_length: int, most_running: int, host: str,
        adapters: Sequence[tuple[str, float]] = (), *, vision: bool = True,
        mmproj: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        provider = open_weights(ref)
        try:
            check_is_model(provider.metadata, provider.path)
            names = provider.tensor_names()
            encodes = find_architecture(provider.config.architecture, provider.path, names).encodes
            tokenizer = tokenizer_from_metadata(
                provider.metadata, checked_defaults(provider).end_ids, source=provider.path
            )
            engine: Any = EngineElsewhere(
                provider.config,
                context_length,
                encodes,
                0,
                adapters=tuple(adapters),
                prefill_chunk=min(PREFILL_CHUNK, context_length),
            )
            images = _cutter(provider, engine, mmproj) if vision else None
            super().__init__(engine, tokenizer, provider, images=images)
            thread = RemoteThread(engine, release=provider.close, max_sequences=most_running)
            thread.generate = handle.options(method_name="generate")
            thread.host, thread.most_running = host, most_running
            self._engine_thread = thread
            self._client = RemoteClient(thread, tokenizer)
            embedder = RemoteEmbedder(self._client, tokenizer, self._chat, provider)
            embedder.handle = handle
            self._embedder = embedder
        except BaseException:
            provider.close()
            raise


def _cutter(
    provider: WeightProvider, engine: Any, mmproj: str | os.PathLike[str] | None
) -> ImageEncoder | None:
    """What reads and cuts the images of requests; None if the model does not read any."""
    from trinity.ray.images import ImageCutter

    return open_images(provider, engine, mmproj, lambda line: None, ImageCutter)
