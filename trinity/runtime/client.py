"""What callers do with a scheduler: submit requests, wait for what they give, leave them."""

from __future__ import annotations

import asyncio
from collections import abc
from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.runtime.answer import Answer
from trinity.runtime.generation import Chunk, Completion
from trinity.runtime.inbox import AsyncInbox, Collector, Inbox, Sink
from trinity.runtime.memory import enough_memory
from trinity.runtime.options import Request
from trinity.runtime.scheduler import Scheduler
from trinity.runtime.sequence import Sequence

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

Prompt = tuple[list[int], Request]


class Client:
    """A model's way to its scheduler, which ends with the last client that is referred to."""

    def __init__(self, scheduler: Scheduler, tokenizer: Tokenizer) -> None:
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        scheduler.end_with(self)

    def stream(self, ids: list[int], request: Request) -> Generator[Chunk, None, None]:
        """An answer's chunks; it is checked now and submitted when the first is asked for."""
        inbox = Inbox()
        return self._chunks(self._answer(ids, request, inbox), inbox)

    def completions(self, prompts: abc.Sequence[Prompt]) -> list[Completion]:
        """All answers, in order."""
        # No generator: a caught exception's traceback would keep it, and what it waits for.
        inbox, found = Inbox(), dict[int, Completion]()
        collectors = [Collector(partial(_put_numbered, inbox, i)) for i in range(len(prompts))]
        answers = self._answers(prompts, collectors)
        try:
            self._scheduler.submit(*answers)
            for _ in answers:
                place, completion = self._scheduler.wait(inbox)
                found[place] = completion
        finally:
            self._scheduler.cancel(*answers)
        return [found[place] for place in range(len(prompts))]

    def as_they_end(
        self, prompts: abc.Sequence[Prompt]
    ) -> Generator[tuple[int, Completion], None, None]:
        """Every answer with its prompt's place; they are submitted with the first ``next``."""
        inbox = Inbox()
        collectors = [Collector(partial(_put_numbered, inbox, i)) for i in range(len(prompts))]
        answers = self._answers(prompts, collectors)
        try:
            self._scheduler.submit(*answers)
            for _ in answers:
                yield self._scheduler.wait(inbox)
        finally:
            self._scheduler.cancel(*answers)

    async def astream(self, ids: list[int], request: Request) -> AsyncGenerator[Chunk, None]:
        """As ``stream``, in an event loop."""
        inbox = AsyncInbox()
        answer = await self._later_answer(ids, request, inbox)
        try:
            self._scheduler.submit(answer)
            reason = None
            while reason is None:
                chunk: Chunk = await inbox.get()
                reason = chunk.finish_reason
                yield chunk
        finally:
            self._scheduler.cancel(answer)

    async def completion(self, ids: list[int], request: Request) -> Completion:
        """A whole answer, in an event loop."""
        inbox = AsyncInbox()
        collector = Collector(inbox.put)
        answer = await self._later_answer(ids, request, collector)
        try:
            self._scheduler.submit(answer)
            found: Completion = await inbox.get()
            return found
        finally:
            self._scheduler.cancel(answer)

    def result(self, sequence: Sequence, inbox: Inbox) -> Any:
        """The one thing that a sequence gives into ``inbox``."""
        try:
            self._scheduler.submit(sequence)
            return self._scheduler.wait(inbox)
        finally:
            self._scheduler.cancel(sequence)

    def _chunks(self, answer: Answer, inbox: Inbox) -> Generator[Chunk, None, None]:
        try:
            self._scheduler.submit(answer)
            reason = None
            while reason is None:
                chunk: Chunk = self._scheduler.wait(inbox)
                reason = chunk.finish_reason
                yield chunk
        finally:
            self._scheduler.cancel(answer)

    def _answers(
        self, prompts: abc.Sequence[Prompt], sinks: abc.Sequence[Sink]
    ) -> list[Answer]:  # fmt: skip
        pairs = zip(prompts, sinks, strict=True)
        return [self._answer(ids, request, sink) for (ids, request), sink in pairs]

    async def _later_answer(self, ids: list[int], request: Request, sink: Sink) -> Answer:
        """An answer; a grammar is compiled outside of the event loop's thread."""
        if request.grammar is None:
            return self._answer(ids, request, sink)
        return await asyncio.to_thread(self._answer, ids, request, sink)

    def _answer(self, ids: list[int], request: Request, sink: Sink) -> Answer:
        engine = self._scheduler.engine
        with enough_memory("for a call"):
            return Answer(
                ids, request, self._tokenizer, sink,
                vocab_size=engine.config.vocab_size, context_length=engine.context_length,
                adapters=engine.adapter_weights(request.lora),
            )  # fmt: skip


def _put_numbered(inbox: Inbox, number: int, item: Completion | BaseException) -> None:
    inbox.put(item if isinstance(item, BaseException) else (number, item))
