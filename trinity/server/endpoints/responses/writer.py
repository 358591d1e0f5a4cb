"""Writes a job's updates as the items of a response and the events of its stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from trinity.conversation import parts
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.server.endpoints.logprobs import ChatLogprob
from trinity.server.endpoints.responses import answer
from trinity.server.endpoints.tools import input_of
from trinity.server.endpoints.usage import LlamaTimings, PromptProgress
from trinity.server.job import End, Update

E = TypeVar("E", bound=answer.InItem)


class ResponseWriter:
    """Writes one response: ``begin``, ``add`` for each update, then ``end`` or ``fail``.

    They yield the events of a stream and complete ``response``. ``logprobs`` converts
    log-probabilities, ``custom`` are the names of custom tools, ``progress`` adds events during
    prefill, and ``timed`` adds timings to deltas. ``is_empty``: the response is complete without
    output.
    """

    def __init__(
        self,
        response: answer.Response,
        logprobs: Callable[[Iterable[TokenLogprob]], list[ChatLogprob]],
        *,
        custom: Collection[str] = (),
        progress: bool = False,
        timed: bool = False,
        is_empty: bool = False,
    ) -> None:
        self.response = response
        self._logprobs = logprobs
        self._custom = custom
        self._number = -1
        self._item: answer.Item | None = None  # the open item, which is the response's last
        self._texts: list[str] = []  # of the open item
        self._pending: list[TokenLogprob] = []
        self._reasoning_tokens = 0
        self._progress = progress
        self._timed = timed
        self._is_empty = is_empty
        self._timings: LlamaTimings | UnsetType = UNSET  # of the newest update

    def begin(self) -> Iterator[answer.StreamEvent]:
        """Write the events before the first update."""
        yield answer.Created(sequence_number=self._next(), response=self.response)
        yield answer.InProgress(sequence_number=self._next(), response=self.response)

    def add(self, update: Update) -> Iterator[answer.StreamEvent]:
        """Write the events of an update."""
        if self._timed and update.timings is not None:
            self._timings = LlamaTimings.of(update.timings, update.evaluated)
        progress = PromptProgress.of(update) if self._progress else None
        if progress is not None:
            yield answer.InProgress(
                sequence_number=self._next(),
                response=self.response,
                timings=self._timings,
                prompt_progress=progress,
            )
        self._pending += update.logprobs
        thought = [isinstance(part, parts.Reasoning) for part in update.parts]
        if all(thought) if thought else isinstance(self._item, answer.ReasoningOutput):
            self._reasoning_tokens += len(update.token_ids)
        for part in update.parts:
            yield from self._open(part)
            custom = isinstance(self._item, answer.CustomOutput)
            if custom and isinstance(part, parts.CallArguments):
                self._texts.append(part.text)
            elif not isinstance(part, parts.CallStart):
                yield self._delta(part)
        if update.parts:
            self._pending.clear()  # reasoning and calls have no log-probabilities

    def end(self, end: End) -> Iterator[answer.StreamEvent]:
        """Write the events after the last update."""
        cut = end.reason == "length" and not self._is_empty
        if not self.response.output and not self._is_empty:
            yield from self._open(parts.Text(""))
        if self._pending and isinstance(self._item, answer.MessageOutput):
            yield self._delta(parts.Text(""))
        yield from self._close("incomplete" if cut else "completed")
        timings, response = end.timings, self.response
        figures = LlamaTimings.of(timings)
        response.token_hash = end.token_hash
        response.usage = answer.ResponseUsage(
            timings.prompt_tokens,
            answer.InputDetails(timings.cached_tokens),
            timings.completion_tokens,
            answer.OutputDetails(self._reasoning_tokens),
            timings.prompt_tokens + timings.completion_tokens,
        )
        if cut:
            response.status = "incomplete"
            response.incomplete_details = answer.Incomplete()
            yield answer.CutShort(sequence_number=self._next(), response=response, timings=figures)
        else:
            response.status = "completed"
            response.completed_at = int(time.time())
            yield answer.Completed(sequence_number=self._next(), response=response, timings=figures)

    def cancel(self) -> Iterator[answer.StreamEvent]:
        """Write the events after the last update of a response that its client has cancelled."""
        yield from self._close("incomplete")
        self.response.status = "cancelled"
        yield answer.CutShort(sequence_number=self._next(), response=self.response)

    def fail(self, message: str) -> answer.StreamEvent:
        """Write the last event of a failure."""
        self.response.status = "failed"
        self.response.error = answer.ResponseFailure(message)
        return answer.Failed(sequence_number=self._next(), response=self.response)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _inside(self, kind: type[E], **fields: Any) -> E:
        """Make an event about the open item."""
        assert self._item is not None
        return kind(
            sequence_number=self._next(),
            item_id=self._item.id,
            output_index=len(self.response.output) - 1,
            **fields,
        )

    def _open(self, part: parts.Part) -> Iterator[answer.StreamEvent]:
        """Open the item that a part belongs to, unless it is open."""
        item = self._item
        if parts.continues(part, item, answer.MessageOutput, answer.ReasoningOutput):
            return
        yield from self._close("completed")
        if isinstance(part, parts.CallStart):
            if part.name in self._custom:
                item = answer.CustomOutput(
                    answer.new_id("ctc"), part.id, part.name, "", "in_progress"
                )
            else:
                item = answer.CallOutput(answer.new_id("fc"), part.id, part.name, "", "in_progress")
        elif isinstance(part, parts.Text):
            item = answer.MessageOutput(answer.new_id("msg"), [], "in_progress")
        else:
            item = answer.ReasoningOutput(answer.new_id("rs"), [], "in_progress")
        self._item = item
        self.response.output.append(item)
        index = len(self.response.output) - 1
        yield answer.ItemAdded(sequence_number=self._next(), output_index=index, item=item)
        if isinstance(item, answer.MessageOutput):
            item.content.append(answer.OutputText("", [], []))
            yield self._inside(answer.PartAdded, part=item.content[0])
        elif isinstance(item, answer.ReasoningOutput):
            item.content.append(answer.ReasoningText(""))
            yield self._inside(answer.PartAdded, part=item.content[0])

    def _delta(
        self, part: parts.Text | parts.Reasoning | parts.CallArguments
    ) -> answer.StreamEvent:
        item = self._item
        self._texts.append(part.text)
        if isinstance(item, answer.CallOutput):
            return self._inside(answer.ArgumentsDelta, delta=part.text, timings=self._timings)
        if isinstance(item, answer.ReasoningOutput):
            return self._inside(answer.ReasoningDelta, delta=part.text, timings=self._timings)
        assert isinstance(item, answer.MessageOutput)
        logprobs = self._logprobs(self._pending)
        self._pending.clear()
        item.content[0].logprobs += logprobs
        return self._inside(
            answer.OutputTextDelta, delta=part.text, logprobs=logprobs, timings=self._timings
        )

    def _close(self, status: answer.Status) -> Iterator[answer.StreamEvent]:
        """Close the open item, complete or cut off."""
        item, text = self._item, "".join(self._texts)
        if item is None:
            return
        item.status = status
        if isinstance(item, answer.CallOutput):
            item.arguments = text
            yield self._inside(answer.ArgumentsDone, name=item.name, arguments=text)
        elif isinstance(item, answer.CustomOutput):
            item.input = input_of(text)
            yield self._inside(answer.InputDelta, delta=item.input)
            yield self._inside(answer.InputDone, input=item.input)
        else:
            item.content[0].text = text
            if isinstance(item, answer.MessageOutput):
                logprobs = item.content[0].logprobs
                yield self._inside(answer.TextDone, text=text, logprobs=logprobs)
            else:
                yield self._inside(answer.ReasoningDone, text=text)
            yield self._inside(answer.PartDone, part=item.content[0])
        index = len(self.response.output) - 1
        yield answer.ItemDone(sequence_number=self._next(), output_index=index, item=item)
        self._texts.clear()
        self._item = None
