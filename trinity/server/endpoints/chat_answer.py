"""Responses of POST /v1/chat/completions: a message, or the chunks of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text
from trinity.server.endpoints.llama_answer import LlamaAnswer
from trinity.server.endpoints.logprobs import ChatLogprobs
from trinity.server.endpoints.tools import Toolbox, input_of
from trinity.server.endpoints.usage import FINGERPRINT, LlamaTimings, PromptProgress, Usage

FinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class FunctionDelta(msgspec.Struct):
    """A function's name, and a piece of the JSON text of its arguments."""

    arguments: str
    name: str | UnsetType = UNSET


class CustomDelta(msgspec.Struct):
    """A custom tool's name, or its input, which comes whole."""

    input: str
    name: str | UnsetType = UNSET


class CallDelta(msgspec.Struct):
    """The beginning of a call, or more of its arguments."""

    index: int
    function: FunctionDelta | UnsetType = UNSET
    custom: CustomDelta | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET


class Delta(msgspec.Struct):
    """The part of the message that a chunk adds."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET
    function_call: FunctionDelta | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    """A chunk's addition to one choice; the last one has the hash of all its tokens."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_hash: str | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """An event of a stream; the last one before [DONE] may contain only the usage."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
    verbose: LlamaAnswer | UnsetType = msgspec.field(default=UNSET, name="__verbose")


class FunctionAnswer(msgspec.Struct):
    """The function that is called, and the JSON text of its arguments."""

    name: str
    arguments: str


class CustomAnswer(msgspec.Struct):
    """The custom tool that is called, and its input."""

    name: str
    input: str


class CallAnswer(msgspec.Struct):
    """A call in an answer."""

    id: str
    function: FunctionAnswer | UnsetType = UNSET
    custom: CustomAnswer | UnsetType = UNSET
    type: Literal["function", "custom"] = "function"


class AnswerMessage(msgspec.Struct):
    """The message of a response."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallAnswer] | UnsetType = UNSET
    function_call: FunctionAnswer | UnsetType = UNSET


class Choice(msgspec.Struct):
    """A response, and the hash of its tokens."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    token_hash: str


class ChatCompletion(msgspec.Struct):
    """The responses to a conversation."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET
    verbose: LlamaAnswer | UnsetType = msgspec.field(default=UNSET, name="__verbose")


@dataclass(slots=True)
class _Called:
    """A call so far."""

    start: CallStart
    arguments: list[str] = field(default_factory=list)

    def answer(self, box: Toolbox) -> CallAnswer:
        """The call as the client knows the tool."""
        start, text = self.start, "".join(self.arguments)
        if start.name in box.custom:
            return CallAnswer(
                start.id, custom=CustomAnswer(start.name, input_of(text)), type="custom"
            )
        return CallAnswer(start.id, FunctionAnswer(start.name, text))


@dataclass(slots=True)
class Gathered:
    """Collects the parts of one response."""

    box: Toolbox
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, _Called] = field(default_factory=dict)

    def add(self, parts: Iterable[Part]) -> None:
        """Add parts."""
        for part in parts:
            if isinstance(part, Text):
                self.text.append(part.text)
            elif isinstance(part, Reasoning):
                self.reasoning.append(part.text)
            elif isinstance(part, CallStart):
                self.calls[part.index] = _Called(part)
            else:
                self.calls[part.index].arguments.append(part.text)

    def message(self) -> AnswerMessage:
        """The answer's message."""
        text = "".join(self.text)
        message = AnswerMessage(
            text if text or not self.calls else None,
            reasoning_content="".join(self.reasoning) if self.reasoning else UNSET,
        )
        calls = [call.answer(self.box) for call in self.calls.values()]
        if calls and self.box.single:
            message.function_call = calls[0].function
        elif calls:
            message.tool_calls = calls
        return message


@dataclass(slots=True)
class Deltas:
    """Converts one response's parts to the deltas of a stream.

    The input of a custom tool is one delta, because the model writes it as a JSON text.
    """

    box: Toolbox
    custom: _Called | None = None

    def of(self, parts: Iterable[Part]) -> Iterator[Delta]:
        """Return the deltas of parts."""
        for part in parts:
            if isinstance(part, CallArguments):
                if self.custom is not None:
                    self.custom.arguments.append(part.text)
                else:
                    yield self._call(part.index, FunctionDelta(part.text))
                continue
            yield from self.rest()
            if isinstance(part, Text):
                yield Delta(content=part.text)
            elif isinstance(part, Reasoning):
                yield Delta(reasoning_content=part.text)
            else:
                yield self._start(part)

    def rest(self) -> Iterator[Delta]:
        """Return what was held back, once a call has ended."""
        called, self.custom = self.custom, None
        if called is not None:
            text = input_of("".join(called.arguments))
            yield Delta(tool_calls=[CallDelta(called.start.index, custom=CustomDelta(text))])

    def _start(self, part: CallStart) -> Delta:
        if part.name not in self.box.custom:
            return self._call(part.index, FunctionDelta("", part.name), part.id)
        self.custom = _Called(part)
        made = CallDelta(part.index, custom=CustomDelta("", part.name), id=part.id, type="custom")
        return Delta(tool_calls=[made])

    def _call(self, index: int, function: FunctionDelta, name: str | None = None) -> Delta:
        if self.box.single:
            return Delta(function_call=function) if index == 0 else Delta()
        if name is None:
            return Delta(tool_calls=[CallDelta(index, function)])
        return Delta(tool_calls=[CallDelta(index, function, id=name, type="function")])


@dataclass(slots=True)
class InContent:
    """Leaves reasoning in the text, between tags, as llama.cpp's ``reasoning_format`` none does."""

    open: bool = False

    def of(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The parts, with texts in place of reasoning."""
        for part in parts:
            thinks = isinstance(part, Reasoning)
            if thinks != self.open:
                yield Text("<think>" if thinks else "</think>")
                self.open = thinks
            yield Text(part.text) if isinstance(part, Reasoning) else part
