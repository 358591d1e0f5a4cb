"""A response and the events of its stream, from the events of a job."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.endpoints.logprobs import ChatLogprob
from trinity.server.endpoints.usage import LlamaTimings, PromptProgress


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """The text of an answer. Nothing is cited, so there are no annotations."""

    text: str
    annotations: list[None] = []
    logprobs: list[ChatLogprob] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


Status = Literal["in_progress", "completed", "incomplete"]


class MessageOutput(msgspec.Struct, tag_field="type", tag="message"):
    """An answer's text."""

    id: str
    content: list[OutputText]
    status: Status
    role: Literal["assistant"] = "assistant"


class ReasoningOutput(msgspec.Struct, tag_field="type", tag="reasoning"):
    """What the model thought, whole; there is no summary, and nothing is encrypted."""

    id: str
    content: list[ReasoningText]
    status: Status
    summary: list[None] = []
    encrypted_content: None = None


class CallOutput(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call of a function, with the JSON text of its arguments."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class CustomOutput(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A call of a custom tool, with its input."""

    id: str
    call_id: str
    name: str
    input: str
    status: Status


Item = MessageOutput | ReasoningOutput | CallOutput | CustomOutput


class InputDetails(msgspec.Struct):
    """Tokens of the prompt that were evaluated before."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """Tokens of reasoning."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Tokens of prompt and answer."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(msgspec.Struct):
    """Why an answer ended early."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(msgspec.Struct):
    """Why there is no answer."""

    message: str
    code: Literal["server_error"] = "server_error"


class Response(msgspec.Struct):
    """A response, with the parameters that it was asked for with."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    output: list[Item]
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float | None
    top_p: float | None
    tool_choice: Any
    tools: list[Any]
    max_output_tokens: int | None
    max_tool_calls: int | None
    reasoning: Any
    text: Any
    top_logprobs: int
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    usage: ResponseUsage | None = None
    error: ResponseFailure | None = None
    incomplete_details: Incomplete | None = None
    completed_at: int | None = None
    previous_response_id: str | None = None
    object: Literal["response"] = "response"
    background: Literal[False] = False
    store: bool = False
    service_tier: Literal["default"] = "default"
    truncation: Literal["disabled"] = "disabled"
    token_hash: str | UnsetType = UNSET


class InputTokens(msgspec.Struct):
    """The number of tokens of a conversation."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class Numbered(msgspec.Struct, tag_field="type", kw_only=True):
    """An event of a stream; they are numbered from 0.

    ``timings`` are llama.cpp's: in the last event, and where they are asked for in every delta.
    """

    sequence_number: int
    timings: LlamaTimings | UnsetType = UNSET


class Created(Numbered, tag="response.created"):
    """The first event."""

    response: Response


class InProgress(Numbered, tag="response.in_progress"):
    """The prompt is accepted; again, where it is asked for, as parts of it are evaluated."""

    response: Response
    prompt_progress: PromptProgress | UnsetType = UNSET


class Completed(Numbered, tag="response.completed"):
    """The last event of an answer that came to its end."""

    response: Response


class CutShort(Numbered, tag="response.incomplete"):
    """The last event of an answer that had too few tokens."""

    response: Response


class Failed(Numbered, tag="response.failed"):
    """The last event where the server failed."""

    response: Response


class ItemAdded(Numbered, tag="response.output_item.added"):
    """An item begins, empty."""

    output_index: int
    item: Item


class ItemDone(Numbered, tag="response.output_item.done"):
    """An item is whole."""

    output_index: int
    item: Item


class InItem(Numbered):
    """An event about an item."""

    item_id: str
    output_index: int


class PartAdded(InItem, tag="response.content_part.added"):
    """The one part of a message or of reasoning begins, empty."""

    part: OutputText | ReasoningText
    content_index: int = 0


class PartDone(InItem, tag="response.content_part.done"):
    """The part is whole."""

    part: OutputText | ReasoningText
    content_index: int = 0


class OutputTextDelta(InItem, tag="response.output_text.delta"):
    """More text."""

    delta: str
    logprobs: list[ChatLogprob]
    content_index: int = 0


class TextDone(InItem, tag="response.output_text.done"):
    """The whole text."""

    text: str
    logprobs: list[ChatLogprob]
    content_index: int = 0


class ReasoningDelta(InItem, tag="response.reasoning_text.delta"):
    """More reasoning."""

    delta: str
    content_index: int = 0


class ReasoningDone(InItem, tag="response.reasoning_text.done"):
    """The whole reasoning."""

    text: str
    content_index: int = 0


class ArgumentsDelta(InItem, tag="response.function_call_arguments.delta"):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(InItem, tag="response.function_call_arguments.done"):
    """All of a call's arguments."""

    name: str
    arguments: str


class InputDelta(InItem, tag="response.custom_tool_call_input.delta"):
    """The input of a custom tool, which comes whole."""

    delta: str


class InputDone(InItem, tag="response.custom_tool_call_input.done"):
    """The input of a custom tool."""

    input: str


StreamEvent = (
    Created | InProgress | ItemAdded | PartAdded | OutputTextDelta | TextDone | ReasoningDelta
    | ReasoningDone | ArgumentsDelta | ArgumentsDone | InputDelta | InputDone | PartDone | ItemDone
    | Completed | CutShort | Failed
)  # fmt: skip


def new_id(prefix: str) -> str:
    """The name of a response or of one of its items."""
    return f"{prefix}_{secrets.token_hex(16)}"
