"""Anthropic's response message and stream events, written from a job's updates."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.conversation import parts
from trinity.runtime.generation import Timings
from trinity.server.job import End, Update

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]


class TextAnswer(msgspec.Struct, tag_field="type", tag="text"):
    """A block of text."""

    text: str


class ThinkingAnswer(msgspec.Struct, tag_field="type", tag="thinking"):
    """A block of reasoning. It has no signature: clients that send it back may change it."""

    thinking: str
    signature: str = ""


class ToolUseAnswer(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A tool call."""

    id: str
    name: str
    input: dict[str, Any]


BlockAnswer = TextAnswer | ThinkingAnswer | ToolUseAnswer


class AnthropicUsage(msgspec.Struct):
    """Token counts. ``input_tokens`` excludes cached ones, as in Anthropic's API."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class MessageAnswer(msgspec.Struct, tag_field="type", tag="message"):
    """The response message."""

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
    """More reasoning."""

    thinking: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    """More JSON text of a tool call's input."""

    partial_json: str


class StopDelta(msgspec.Struct):
    """Why the response ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None
    token_hash: str | UnsetType = UNSET


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    """The first event. The message is empty and its count of cached tokens is still 0."""

    message: MessageAnswer


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """An event without content that keeps the connection open."""


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    """The start of a block, which is empty."""

    index: int
    content_block: BlockAnswer


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    """More content of a block."""

    index: int
    delta: AnthropicTextDelta | ThinkingDelta | InputJsonDelta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    """The end of a block."""

    index: int


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    """The end of the message, with the final counts."""

    delta: StopDelta
    usage: AnthropicUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """The last event."""


StreamEvent = MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop


class MessageWriter:
    """Writes one message: ``begin``, then ``add`` for each update, then ``end``.

    They yield the events of a stream and complete ``message``. Without ``shows_thinking``, thinking
    blocks stay empty.
    """

    def __init__(
        self, model: str, prompt_tokens: int, max_tokens: int, *, shows_thinking: bool = True
    ) -> None:
        name = f"msg_{secrets.token_hex(16)}"
        self.message = MessageAnswer(name, model, [], AnthropicUsage(prompt_tokens, 0))
        self._max_tokens = max_tokens
        self._shows_thinking = shows_thinking
        self._texts: list[str] | None = None  # texts of the open block, which is the last

    def begin(self) -> Iterator[StreamEvent]:
        """Write the events before the first update."""
        yield MessageStart(self.message)
        yield Ping()

    def add(self, update: Update) -> Iterator[StreamEvent]:
        """Write the events of an update."""
        for part in update.parts:
            yield from self._open(part)
            if isinstance(part, parts.CallStart):
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
        self, part: parts.Text | parts.Reasoning | parts.CallArguments
    ) -> AnthropicTextDelta | ThinkingDelta | InputJsonDelta | None:
        if isinstance(part, parts.Text):
            return AnthropicTextDelta(part.text)
        if isinstance(part, parts.CallArguments):
            return InputJsonDelta(part.text)
        return ThinkingDelta(part.text) if self._shows_thinking else None

    def _open(self, part: parts.Part) -> Iterator[StreamEvent]:
        """Open the block that a part belongs to, unless it is open."""
        content = self.message.content
        last = content[-1] if content and self._texts is not None else None
        if parts.continues(part, last, TextAnswer, ThinkingAnswer):
            return
        yield from self._close()
        block: BlockAnswer
        if isinstance(part, parts.CallStart):
            block = ToolUseAnswer(part.id, part.name, {})
        else:
            block = TextAnswer("") if isinstance(part, parts.Text) else ThinkingAnswer("")
        content.append(block)
        self._texts = []
        yield BlockStart(len(content) - 1, block)

    def _close(self) -> Iterator[StreamEvent]:
        """Close the open block, complete or cut off."""
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
    """Return the object of a JSON text, or an empty one if the text was cut off."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError):
        return {}


def usage_of(timings: Timings) -> AnthropicUsage:
    """Return the token counts; Anthropic counts cached tokens separately."""
    return AnthropicUsage(
        timings.prompt_tokens - timings.cached_tokens,
        timings.completion_tokens,
        timings.cached_tokens,
    )
