"""Submits requests to the engine thread, waits for their results and cancels them."""

from __future__ import annotations

from collections import abc
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

from trinity.runtime.generation import Chunk, Completion, collect, joined
from trinity.runtime.interface import Engine
from trinity.runtime.memory import enough_memory
from trinity.runtime.options import Request
from trinity.runtime.prompts import ids_or_bos
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import AsyncInbox, Collector, Inbox, NumberedSink, Sink
from trinity.runtime.scheduling.request_state import RequestState
from trinity.runtime.scheduling.sequence import Sequence

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

Prompt = tuple[list[int], Request]

FEW = 8  # responses that take less than a millisecond to prepare


class AsyncResponses:
    """Chunks of responses that are submitted together, as pairs (index of the response, chunk).

    The iteration ends with the last chunk of the last response; the error of one ends all.
    ``close``, which the end of ``with`` calls, cancels the responses that have not ended.
    """

    def __init__(
        self, engine_thread: EngineThread, requests: abc.Sequence[RequestState],
        sinks: abc.Sequence[Sink], inbox: AsyncInbox,
    ) -> None:  # fmt: skip
        self._engine_thread = engine_thread
        self._requests = requests
        self._sinks = sinks  # requests refer to their sinks weakly
        self._inbox = inbox
        self._left = len(requests)
        self.prompt_tokens = [len(request.tokens) for request in requests]  # of each response

    def submit(self, client: str = "") -> AsyncResponses:
        """Start generating the responses. Arguments and errors: as ``EngineThread.submit``."""
        self._engine_thread.submit(*self._requests, client=client)
        return self

    def __aiter__(self) -> AsyncResponses:
        return self

    async def __anext__(self) -> tuple[int, Chunk]:
        if not self._left:
            raise StopAsyncIteration
        numbered_chunk: tuple[int, Chunk] = await self._inbox.get()
        self._left -= numbered_chunk[1].finish_reason is not None
        return numbered_chunk

    @property
    def has_next(self) -> bool:
        """Whether the next chunk needs no waiting."""
        return self._inbox.has_next

    def cancel(self, index: int) -> None:
        """End one response as "cancelled" if it has not ended."""
        self._engine_thread.cancel(self._requests[index])

    def close(self) -> None:
        """Cancel the responses that have not ended. Closing again does nothing."""
        self._left = 0
        self._engine_thread.cancel(*self._requests)

    def __enter__(self) -> AsyncResponses:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Client:
    """A model's access to its engine thread, which ends when nothing refers to the client."""

    def __init__(self, engine_thread: EngineThread, tokenizer: Tokenizer) -> None:
        self._engine_thread = engine_thread
        self._tokenizer = tokenizer
        engine_thread.end_with(self)

    @property
    def engine(self) -> Engine:
        """The engine that computes the requests."""
        return self._engine_thread.engine

    def check_open(self) -> None:
        """Raise InputError if the model is closed."""
        self._engine_thread.check_open()

    def stream(self, ids: list[int], request: Request) -> Generator[Chunk, None, None]:
        """The chunks of a response. It is checked now and submitted when the first chunk is
        requested.
        """
        inbox = Inbox()
        return self._chunks(self._request_state(ids, request, inbox), inbox)

    def completions(self, prompts: abc.Sequence[Prompt]) -> list[Completion]:
        """The completions of all prompts, in order."""
        # Not a generator: the traceback of a caught exception would keep it and its inbox alive.
        inbox, by_index = Inbox(), dict[int, Completion]()
        collectors = [Collector(NumberedSink(inbox, i).put) for i in range(len(prompts))]
        requests = self._request_states(prompts, collectors)
        try:
            self._engine_thread.submit(*requests)
            for _ in requests:
                index, completion = self._engine_thread.wait(inbox)
                by_index[index] = completion
        finally:
            self._engine_thread.cancel(*requests)
        return [by_index[index] for index in range(len(prompts))]

    def as_they_end(
        self, prompts: abc.Sequence[Prompt]
    ) -> Generator[tuple[int, Completion], None, None]:
        """Yield (index of the prompt, completion) as they end; ``next`` submits all prompts."""
        inbox = Inbox()
        collectors = [Collector(NumberedSink(inbox, i).put) for i in range(len(prompts))]
        requests = self._request_states(prompts, collectors)
        try:
            self._engine_thread.submit(*requests)
            for _ in requests:
                yield self._engine_thread.wait(inbox)
        finally:
            self._engine_thread.cancel(*requests)

    async def astream(self, ids: list[int], request: Request) -> AsyncGenerator[Chunk, None]:
        """As ``stream``, in an event loop."""
        with await self.submitted([(ids, request)]) as responses:
            async for _, chunk in responses:
                yield chunk

    async def completion(self, ids: list[int], request: Request) -> Completion:
        """A whole completion, in an event loop."""
        with await self.submitted([(ids, request)], whole=True) as responses:
            return collect([chunk async for _, chunk in responses])

    async def submitted(
        self, prompts: abc.Sequence[Prompt], *, whole: bool = False
    ) -> AsyncResponses:
        """All responses, checked and submitted when this returns, in an event loop.

        A thread prepares them if there are many, or if they have grammars or many stop strings.
        """
        inbox = AsyncInbox()
        if len(prompts) > FEW or any(request.takes_time for _, request in prompts):
            import asyncio

            prepared = await asyncio.to_thread(self.prepared, prompts, inbox, whole=whole)
        else:
            prepared = self.prepared(prompts, inbox, whole=whole)
        return prepared.submit()

    def prepared(
        self, prompts: abc.Sequence[Prompt], inbox: AsyncInbox, *, whole: bool = False
    ) -> AsyncResponses:
        """All responses, checked and not submitted yet; their chunks will come into ``inbox``.

        ``whole``: each response is one chunk, so that the event loop is not woken for each token.
        Compiling a grammar or many stop strings takes time, so call this in a thread.
        """
        sinks: list[Sink] = [NumberedSink(inbox, i) for i in range(len(prompts))]
        if whole:
            sinks = [Collector(sink.put, joined) for sink in sinks]
        prompts = [(ids_or_bos(ids, self._tokenizer), request) for ids, request in prompts]
        requests = self._request_states(prompts, sinks)
        return AsyncResponses(self._engine_thread, requests, sinks, inbox)

    def result(self, sequence: Sequence, inbox: Inbox) -> Any:
        """Run a sequence; return the one result that it puts into ``inbox``."""
        return self.results([sequence], [inbox])[0]

    def results(self, sequences: abc.Sequence[Sequence], inboxes: abc.Sequence[Inbox]) -> list[Any]:
        """Run sequences; return the one result that each puts into its inbox."""
        try:
            self._engine_thread.submit(*sequences)
            return [self._engine_thread.wait(inbox) for inbox in inboxes]
        finally:
            self._engine_thread.cancel(*sequences)

    async def aresults(
        self, sequences: abc.Sequence[Sequence], inboxes: abc.Sequence[AsyncInbox],
        client: str = "",
    ) -> list[Any]:  # fmt: skip
        """As ``results``, in an event loop; ``client`` as for ``EngineThread.submit``."""
        try:
            self._engine_thread.submit(*sequences, client=client)
            return [await inbox.get() for inbox in inboxes]
        finally:
            self._engine_thread.cancel(*sequences)

    async def aresult(self, sequence: Sequence, inbox: AsyncInbox, client: str = "") -> Any:
        """As ``result``, in an event loop."""
        return (await self.aresults([sequence], [inbox], client))[0]

    def _chunks(self, request: RequestState, inbox: Inbox) -> Generator[Chunk, None, None]:
        try:
            self._engine_thread.submit(request)
            reason = None
            while reason is None:
                chunk: Chunk = self._engine_thread.wait(inbox)
                reason = chunk.finish_reason
                yield chunk
        finally:
            self._engine_thread.cancel(request)

    def _request_states(
        self, prompts: abc.Sequence[Prompt], sinks: abc.Sequence[Sink]
    ) -> list[RequestState]:
        pairs = zip(prompts, sinks, strict=True)
        return [self._request_state(ids, request, sink) for (ids, request), sink in pairs]

    def _request_state(self, ids: list[int], request: Request, sink: Sink) -> RequestState:
        engine = self.engine
        with enough_memory("for a call"):
            return RequestState(
                ids, request, self._tokenizer, sink,
                vocab_size=engine.config.vocab_size, context_length=engine.context_length,
                adapters=engine.adapter_weights(request.lora),
            )  # fmt: skip
