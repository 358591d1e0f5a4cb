"""A message that answers and the events of its stream, from the events of a job."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text
from trinity.runtime.generation import Timings
from trinity.server.job import End, Update

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class TextAnswer(msgspec.Struct, tag_field="type", tag="text"):
    """The text of an answer."""

    text: str


class ThinkingAnswer(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thought. It is not signed: whoever sends it back may change it."""

    thinking: str
    signature: str = ""


class ToolUseAnswer(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


BlockAnswer = TextAnswer | ThinkingAnswer | ToolUseAnswer


class AnthropicUsage(msgspec.Struct):
    """Tokens: of the prompt those that were evaluated, those evaluated before, and the answer's."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class MessageAnswer(msgspec.Struct, tag_field="type", tag="message"):
    """The message that answers."""

    id: str
    model: str
    content: list[BlockAnswer]
    usage: AnthropicUsage
    role: Literal["assistant"] = "assistant"
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    token_hash: str | UnsetType = UNSET


class AnthropicTextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    """More of what the model thinks."""

    thinking: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


class StopDelta(msgspec.Struct):
    """Why the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None
    token_hash: str | UnsetType = UNSET


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The first event; the message is empty, and nothing of the prompt counts as cached yet."""

    message: MessageAnswer


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """A sign of life."""


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: BlockAnswer


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """More of a block."""

    index: int
    delta: AnthropicTextDelta | ThinkingDelta | InputJsonDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """A block is whole."""

    index: int


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The end of the message, with the final counts."""

    delta: StopDelta
    usage: AnthropicUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The last event."""


StreamEvent = MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


class MessageWriter:
    """Writes one message; ``message`` is what there is of it.

    ``shows_thinking``: else a block of thinking stays empty. ``begin``, ``add`` and ``end`` give a
    stream's events in order; for a whole message they are only run through.
    """

    def __init__(
        self, model: str, prompt_tokens: int, max_tokens: int, *, shows_thinking: bool = True
    ) -> None:
        name = f"msg_{secrets.token_hex(16)}"
        self.message = MessageAnswer(name, model, [], AnthropicUsage(prompt_tokens, 0))
        self._max_tokens = max_tokens
        self._shows_thinking = shows_thinking
        self._texts: list[str] | None = None  # of the open block, the message's last

    def begin(self) -> Iterator[StreamEvent]:
        """The events before any of the answer."""
        yield MessageStart(self.message)
        yield Ping()

    def add(self, update: Update) -> Iterator[StreamEvent]:
        """Write the events of an update."""
        for part in update.parts:
            yield from self._open(part)
            if isinstance(part, CallStart):
                continue
            if self._texts is not None:
                self._texts.append(part.text)
            delta = self._delta(part)
            if delta is not None:
                yield BlockDelta(len(self.message.content) - 1, delta)

    def end(self, end: End) -> Iterator[StreamEvent]:
        """Write the events after the last update."""
        yield from self._close()
        message = self.message
        message.usage = usage_of(end.timings)
        message.stop_reason = self._reason(end)
        if message.stop_reason == "stop_sequence":
            message.stop_sequence = end.stop
        message.token_hash = end.token_hash
        stopped = StopDelta(message.stop_reason, message.stop_sequence, message.token_hash)
        yield MessageDelta(stopped, message.usage)
        yield MessageStop()

    def _reason(self, end: End) -> StopReason:
        if end.reason == "length":
            full = end.timings.completion_tokens < self._max_tokens
            return "model_context_window_exceeded" if full else "max_tokens"
        if end.called:
            return "tool_use"
        return "end_turn" if end.stop is None else "stop_sequence"

    def _delta(
        self, part: Text | Reasoning | CallArguments
    ) -> AnthropicTextDelta | ThinkingDelta | InputJsonDelta | None:
        if isinstance(part, Text):
            return AnthropicTextDelta(part.text)
        if isinstance(part, CallArguments):
            return InputJsonDelta(part.text)
        return ThinkingDelta(part.text) if self._shows_thinking else None

    def _open(self, part: Part) -> Iterator[StreamEvent]:
        """See to it that the block that a part belongs to is open."""
        content = self.message.content
        last = content[-1] if content and self._texts is not None else None
        if isinstance(part, Text) and isinstance(last, TextAnswer):
            return
        if isinstance(part, Reasoning) and isinstance(last, ThinkingAnswer):
            return
        if isinstance(part, CallArguments):
            return
        yield from self._close()
        block: BlockAnswer
        if isinstance(part, CallStart):
            block = ToolUseAnswer(part.id, part.name, {})
        else:
            block = TextAnswer("") if isinstance(part, Text) else ThinkingAnswer("")
        content.append(block)
        self._texts = []
        yield BlockStart(len(content) - 1, block)

    def _close(self) -> Iterator[StreamEvent]:
        """The open block is whole, or all there will be of it."""
        if self._texts is None:
            return
        text, block = "".join(self._texts), self.message.content[-1]
        if isinstance(block, TextAnswer):
            block.text = text
        elif isinstance(block, ToolUseAnswer):
            block.input = whole_object(text)
        elif self._shows_thinking:
            block.thinking = text
        self._texts = None
        yield BlockStop(len(self.message.content) - 1)


def whole_object(text: str) -> dict[str, Any]:
    """The object of a JSON text; empty where the text was cut."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError):
        return {}


def usage_of(timings: Timings) -> AnthropicUsage:
    """Anthropic counts cached tokens apart."""
    return AnthropicUsage(
        timings.prompt_tokens - timings.cached_tokens,
        timings.completion_tokens,
        timings.cached_tokens,
    )
