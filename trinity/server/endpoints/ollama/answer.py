"""Ollama's responses, whole or as lines of JSON, written from a job's updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.server.endpoints.logprobs import ChatLogprob
from trinity.server.endpoints.ollama.errors import now
from trinity.server.job import End, Update

NANO = 1_000_000_000


class OllamaFunction(msgspec.Struct):
    """The function of a tool call, with its arguments."""

    name: str
    arguments: dict[str, Any]
    index: int = 0


class OllamaToolCall(msgspec.Struct):
    """A tool call."""

    function: OllamaFunction
    id: str | UnsetType = UNSET


class OllamaAnswerMessage(msgspec.Struct):
    """The response message, or a part of it in a stream."""

    content: str
    role: Literal["assistant"] = "assistant"
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaToolCall] | UnsetType = UNSET


class Figures(msgspec.Struct, kw_only=True):
    """Fields of all lines; the counts and durations are in the last line only."""

    model: str
    created_at: str
    done: bool = False
    done_reason: Literal["stop", "length", "load", "unload"] | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET  # nanoseconds, like all durations
    load_duration: int | UnsetType = UNSET  # of loading the model, or waiting in the queue
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: list[ChatLogprob] | UnsetType = UNSET
    token_hash: str | UnsetType = UNSET


class ChatAnswer(Figures, kw_only=True):
    """A line of a chat response, or the whole response."""

    message: OllamaAnswerMessage


class GenerateAnswer(Figures, kw_only=True):
    """A line of a completion, or the whole completion."""

    response: str
    thinking: str | UnsetType = UNSET
    context: list[int] | UnsetType = UNSET  # token ids of prompt and completion


Answer = ChatAnswer | GenerateAnswer
# Makes a line of (model, text, thinking, calls).
Line = Callable[[str, str, str, list[OllamaToolCall]], Answer]


def chat_answer(model: str, text: str, thinking: str, calls: list[OllamaToolCall]) -> Answer:
    """Make a line of a chat response."""
    message = OllamaAnswerMessage(text, thinking=thinking or UNSET, tool_calls=calls or UNSET)
    return ChatAnswer(model=model, created_at=now(), message=message)


def generate_answer(model: str, text: str, thinking: str, calls: list[OllamaToolCall]) -> Answer:
    """Make a line of a completion."""
    return GenerateAnswer(model=model, created_at=now(), response=text, thinking=thinking or UNSET)


# Updates in one line: after this many, other tasks have their turn.
MOST_TOGETHER = 64


class AnswerWriter:
    """Writes one response. A tool call is written when it is complete; one cut off is dropped.

    Texts that are here together, at most ``MOST_TOGETHER`` and without log-probabilities, are one
    line, because some clients take each read for one line. ``has_next``: whether another update is
    here.

    ``began``: when the request arrived. ``line`` and ``logprobs`` make lines and log-probabilities.
    ``prompt``: token ids for ``GenerateAnswer.context``, or None to omit it.
    """

    def __init__(
        self, model: str, began: float, line: Line,
        logprobs: Callable[[Iterable[TokenLogprob]], list[ChatLogprob]],
        prompt: Sequence[int] | None = None, has_next: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._model = model
        self._has_next = has_next
        self._began = began
        self._line = line
        self._logprobs = logprobs
        self._context = None if prompt is None else list(prompt)
        self._call: CallStart | None = None  # the incomplete one
        self._arguments: list[str] = []
        # The content of the next line, and the number of updates it comes from.
        self._together = 0
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[OllamaToolCall] = []
        self._tokens: list[TokenLogprob] = []

    def add(self, update: Update) -> Iterator[Answer]:
        """Write the line of an update, unless another one is here."""
        if self._context is not None:
            self._context += update.token_ids
        for part in update.parts:
            if isinstance(part, CallArguments):
                self._arguments.append(part.text)
                continue
            self._calls += self._called()
            if isinstance(part, CallStart):
                self._call = part
            elif isinstance(part, Reasoning):
                self._thoughts.append(part.text)
            elif isinstance(part, Text):
                self._texts.append(part.text)
        self._tokens += update.logprobs
        self._together += 1
        if self._tokens or self._together >= MOST_TOGETHER or not self._has_next():
            yield from self._written()

    def _written(self) -> Iterator[Answer]:
        """The line of what is not written yet, if there is any."""
        texts, thoughts, calls, tokens = self._texts, self._thoughts, self._calls, self._tokens
        if texts or thoughts or calls or tokens:
            line = self._line(self._model, "".join(texts), "".join(thoughts), calls)
            if tokens:
                line.logprobs = self._logprobs(tokens)
            self._texts, self._thoughts, self._calls, self._tokens = [], [], [], []
            yield line
        self._together = 0

    def end(self, end: End) -> Iterator[Answer]:
        """Write what is left, a complete tool call among it, then the last line."""
        self._calls += self._called()
        yield from self._written()
        line, timings = self._line(self._model, "", "", []), end.timings
        line.done = True
        line.done_reason = "length" if end.reason == "length" else "stop"
        line.total_duration = int((time.perf_counter() - self._began) * NANO)
        prompting = int(timings.prompt_seconds * NANO)
        evaluating = int(timings.completion_seconds * NANO)
        if timings.completion_tokens and not evaluating:
            # All tokens came from the prompt's last step. Clients require a duration, and divide by
            # it: that step took about as long as each token of the prompt.
            evaluated = timings.prompt_tokens - timings.cached_tokens
            evaluating = max(1, prompting // max(1, evaluated))
        line.load_duration = max(0, line.total_duration - prompting - evaluating)
        line.prompt_eval_count = timings.prompt_tokens
        # As in Ollama, a count of 0 is omitted: clients divide by it.
        line.prompt_eval_duration = prompting or UNSET
        line.eval_count = timings.completion_tokens
        line.eval_duration = evaluating or UNSET
        line.token_hash = end.token_hash
        if self._context is not None and isinstance(line, GenerateAnswer):
            line.context = self._context
        yield line

    def _called(self) -> list[OllamaToolCall]:
        """Return the pending tool call if it is complete."""
        call, text = self._call, "".join(self._arguments)
        self._call = None
        self._arguments.clear()
        if call is None:
            return []
        try:
            arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, ValueError):
            return []
        return [OllamaToolCall(OllamaFunction(call.name, arguments, call.index), call.id)]


def only(line: Answer, reason: Literal["load", "unload"]) -> Answer:
    """Complete the response to a request that only loads or unloads the model."""
    line.done = True
    line.done_reason = reason
    return line


def whole(lines: list[Answer]) -> Answer:
    """Join all lines of a response."""
    last = lines[-1]
    logprobs = [token for line in lines if line.logprobs is not UNSET for token in line.logprobs]
    if logprobs:
        last.logprobs = logprobs
    if isinstance(last, GenerateAnswer):
        own = [line for line in lines if isinstance(line, GenerateAnswer)]
        last.response = "".join(line.response for line in own)
        last.thinking = "".join(x.thinking for x in own if x.thinking is not UNSET) or UNSET
        return last
    messages = [line.message for line in lines if isinstance(line, ChatAnswer)]
    calls = [call for x in messages if x.tool_calls is not UNSET for call in x.tool_calls]
    last.message = OllamaAnswerMessage(
        "".join(x.content for x in messages),
        thinking="".join(x.thinking for x in messages if x.thinking is not UNSET) or UNSET,
        tool_calls=calls or UNSET,
    )
    return last
