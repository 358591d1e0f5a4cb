"""The state that all requests share, and the running of jobs.

An endpoint that responds at once:

    async def handle(call: Call[Body]) -> ASGI:
        job = ChatJob(messages, options, whole=True)
        with await call.start(call.body.model, job) as answers:
            async for event in answers:      # an Update, then an End, for each of the n answers
                ...
        return Json(...)

One that streams passes the same call to ``Stream``, and a generator of the bytes to send:

    async def written(answers: Answers) -> AsyncGenerator[bytes]:
        async for event in answers:
            yield data(encode(...))

    async def handle(call: Call[Body]) -> ASGI:
        return Stream(partial(call.start, call.body.model, job), written, FAMILY)

``start`` raises errors of the request before anything is sent. If the client disconnects, the
handler is cancelled and its ``with`` ends the generation; ``Stream`` ends it itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import numpy as np

from trinity.runtime.scheduling.inbox import AsyncInbox
from trinity.server.batches.batch_queue import BatchQueue
from trinity.server.caller import Caller, Keys, folder_of, salt_of
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob, End, Event, TextJob, Update
from trinity.server.kept import KeptStreams
from trinity.server.kept_responses import KeptResponses, part_of_responses
from trinity.server.metrics import Metrics
from trinity.server.models import Models
from trinity.server.prepared import Prepared, PromptSettings, prepared
from trinity.server.response_files import ResponseFiles
from trinity.server.served import ModelLease
from trinity.server.settings import ServerOptions
from trinity.server.slot_files import SlotFiles
from trinity.server.speech import Speech
from trinity.server.threads import Threads
from trinity.server.transport.bodies import Bodies

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.generation import Chunk
    from trinity.runtime.scheduling.client import AsyncResponses
    from trinity.server.created import CreatedModels
    from trinity.server.tracing import ResponseSpans, Tracing

# Most log-probabilities of alternative tokens in a response that is not streamed.
MOST_LOGPROBS = 500_000
NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", covariant=True)


class Writer(Protocol[T]):
    """Turns the events of a response into what an API sends: its own events, or lines."""

    def add(self, update: Update) -> Iterable[T]:
        """Return the bytes to send for an update."""
        ...

    def end(self, end: End) -> Iterable[T]:
        """Return the bytes to send at the end."""
        ...


class TokenHash:
    """The first 16 bytes of SHA-256 of token ids, each as 4 bytes, little-endian."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, ids: Iterable[int]) -> None:
        """Add tokens."""
        self._hash.update(np.fromiter(ids, "<u4").tobytes())

    def __str__(self) -> str:
        return self._hash.hexdigest()[:32]


class Answers:
    """The n responses of a job in progress; iterating gives their events.

    ``close``, or the end of ``with``, cancels what is still generated.
    """

    def __init__(
        self, service: Service, caller: Caller, lease: ModelLease, answers: AsyncResponses,
        ready: Prepared, n: int, most_logprobs: float = math.inf,
    ) -> None:  # fmt: skip
        self.name = lease.name  # of the model
        self.model = lease.model
        self.client = caller.client  # whose request it is
        self.created = int(time.time())  # seconds since the epoch
        self.options = ready.options  # GenerationOptions of the request
        self.prompts = ready.prompts  # token ids
        self.prompt_tokens: Sequence[int] = answers.prompt_tokens[::n]  # of each prompt
        self.control = ready.control  # of reasoning, if the job allows it
        self._completion = ""  # its id, under which other requests find it
        self._service = service
        self._running = service.owned[caller.owner].running
        # Work on a response does not grow with the request's body.
        self._caller = replace(caller, body_bytes=0)
        self._lease = lease
        self._answers = answers
        self._readers = [ready.reader() for _ in answers.prompt_tokens]
        self._hashes = [TokenHash() for _ in answers.prompt_tokens]
        self.spans: ResponseSpans | None = None  # of the request's trace
        self._events: deque[Event] = deque()
        self._logprobs_left = most_logprobs

    @property
    def predicted(self) -> float | None:
        """Estimated seconds until the first token; None until a request has ended."""
        return self._lease.estimates.first_token(self.model.scheduler_stats())

    @property
    def has_next(self) -> bool:
        """Whether the next event needs no waiting."""
        return bool(self._events) or self._answers.has_next

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            self._read(*await anext(self._answers))
        event = self._events.popleft()
        if isinstance(event, Update) and event.logprobs:
            await asyncio.sleep(0)  # each takes time, and many may be ready at once
        return event

    async def run(self, function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        """Run a function that makes part of the response, in a thread, as ``Threads.run`` does."""
        return await self._service.threads.run(self._caller, function, *args, **named)

    def found_by(self, completion: str) -> None:
        """Let other requests of the same owner find this one by the id of its completion."""
        self._completion = completion
        self._running[completion] = self

    async def by(self, writer: Writer[T]) -> AsyncGenerator[T, None]:
        """Yield the output of ``writer`` for the events, in order."""
        async for event in self:
            for made in writer.end(event) if isinstance(event, End) else writer.add(event):
                yield made

    def close(self) -> None:
        """End the generation and release the model. Calling it again has no effect."""
        self._running.pop(self._completion, None)
        if self.spans is not None:
            self.spans.close()
        self._answers.close()
        self._lease.release()

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, index: int, chunk: Chunk) -> None:
        reader = self._readers[index]
        self._logprobs_left -= sum(len(token.top) for token in chunk.logprobs or ())
        if self._logprobs_left < 0:
            raise ApiError(
                400, f"the response has more than {MOST_LOGPROBS} log-probabilities; request "
                "fewer, or stream", "logprobs",
            )  # fmt: skip
        if not reader.complete:
            self._hashes[index].add(chunk.token_ids)
        parts = tuple(reader.push(chunk.text)) if chunk.text else ()
        if chunk.finish_reason is not None:
            parts += tuple(reader.finish())
        if parts or chunk.token_ids or chunk.evaluated is not None:
            logprobs = chunk.logprobs or ()
            self._events.append(
                Update(index, parts, logprobs, chunk.token_ids, chunk.timings, chunk.evaluated)
            )
        if chunk.finish_reason is None:
            if reader.complete:
                self._answers.cancel(index)
            return
        reason = chunk.finish_reason
        if reason == "cancelled" and reader.complete:
            reason = "stop"
        if reason == "cancelled":
            raise ApiError(503, "the server is stopping")
        assert chunk.timings is not None
        self._service.metrics.ended(self.name, chunk.timings, reason)
        self._lease.estimates.ended(chunk.timings)
        if self.spans is not None:
            self.spans.ended(index, chunk.timings, "tool_calls" if reader.called else reason)
        token_hash = str(self._hashes[index])
        self._events.append(
            End(index, reason, chunk.timings, reader.called, chunk.stop, token_hash)
        )


@dataclass(frozen=True, slots=True)
class Owned:
    """The data that the server keeps in memory for one owner of an API key."""

    kept: KeptStreams
    responses: KeptResponses
    running: dict[str, Answers] = field(default_factory=dict)
    """Streamed chat completions in progress, by id."""


@dataclass(eq=False, repr=False)
class Service:
    """What all requests share: settings, models, metrics, threads, and each owner's data."""

    settings: ServerOptions
    models: Models
    metrics: Metrics
    defaults: Mapping[str, Any] = field(default_factory=lambda: NO_DEFAULTS)
    speech: Speech | None = None
    created: CreatedModels | None = None  # if requests may create models

    def __post_init__(self) -> None:
        settings = self.settings
        self.keys = Keys(settings.all_keys())
        owners = len(self.keys.owners)
        self.owned = {
            name: Owned(KeptStreams(owners), part_of_responses(owners, files_in(settings, name)))
            for name in self.keys.owners
        }
        self.batches = batches_in(settings, self.keys)
        self.threads = Threads()
        self.slot_files = SlotFiles()
        self.bodies = Bodies(max(settings.max_body, settings.max_audio))
        self.tracing: Tracing | None = None
        if settings.traces:
            from trinity.server.tracing import Tracing  # needs an extra

            self.tracing = Tracing()

    async def start(
        self, ignored: Ignored, caller: Caller, name: str | None, job: ChatJob | TextJob
    ) -> Answers:
        """Check a job and submit it to the model ``name``, None for the first.

        Raises: ApiError (no such model; too many wait) and the errors of ``Model.prepared``.
        """
        self._check_size(job)
        lease = await self.models.lease(ignored, name, caller.owner)
        try:
            own = {**lease.defaults, **self.defaults}
            defaults = {**own, "lora": lease.lora_of(caller.owner)}
            options = self._salted(caller, {**defaults, **job.options})
            options["priority"] = caller.priority(ignored, options.get("priority", 0))
            job = replace(job, options=options)
            count = job.n * (1 if isinstance(job, ChatJob) else len(job.prompts))
            with lease.entering(caller.client, count, self.settings.max_queue):
                ready, answers = await self.threads.run(
                    caller, self._prepared, ignored, lease.model, job, AsyncInbox()
                )
                answers.submit(caller.client)
            most = MOST_LOGPROBS if job.whole else math.inf
            made = Answers(self, caller, lease, answers, ready, job.n, most)
            if self.tracing is not None:
                made.spans = self.tracing.responses(lease.name, job, ready.options, count)
            return made
        except BaseException:
            lease.release()
            raise

    def _prepared(
        self, ignored: Ignored, model: Model, job: ChatJob | TextJob, inbox: AsyncInbox
    ) -> tuple[Prepared, AsyncResponses]:
        """Return the prompts of a job, and its request to the engine before it is submitted."""
        ready = prepared(ignored, model, job, self.prompts)
        # Many log-probabilities at once would block the event loop.
        whole = job.whole and ready.options.get("logprobs") is None
        return ready, model.prepared(ready.prompts, inbox, n=job.n, whole=whole, **ready.options)

    @property
    def prompts(self) -> PromptSettings:
        """The server's settings of prompts."""
        settings = self.settings
        fetched = settings.max_audio if settings.allow_image_urls else 0
        folder = "" if settings.media_path is None else os.fspath(settings.media_path)
        return PromptSettings(
            settings.chat_template_kwargs or {}, fetched, folder, settings.max_audio
        )

    def _salted(self, caller: Caller, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options with the salt of the owner's cached prompts; slots need none."""
        shared = self.settings.share_prefix_cache and options.get("slot") is None
        salt = salt_of(caller.owner, options.get("cache_salt", ""), shared=shared)
        return {**options, "cache_salt": salt}

    def _check_size(self, job: ChatJob | TextJob) -> None:
        most = self.settings.max_answers
        if isinstance(job, ChatJob):
            if len(job.messages) > self.settings.max_messages:
                raise ApiError(
                    400,
                    f"there are {len(job.messages)} messages; at most "
                    f"{self.settings.max_messages} are allowed",
                    "messages",
                )
            count = job.n
        else:
            count = job.n * len(job.prompts)
        if count > most:
            raise ApiError(400, f"{count} responses are requested; at most {most} are allowed", "n")


def files_in(settings: ServerOptions, owner: str) -> ResponseFiles | None:
    """Return the files of an owner's responses, if there is a state folder. Raises: InputError."""
    if settings.state is None:
        return None
    return ResponseFiles(folder_of(Path(settings.state), owner) / "responses")


def batches_in(settings: ServerOptions, keys: Keys) -> BatchQueue | None:
    """Return the store of files and batches, if there is a state folder. Raises: InputError."""
    if settings.state is None:
        return None
    return BatchQueue(Path(settings.state), settings.max_files, keys.owners)
