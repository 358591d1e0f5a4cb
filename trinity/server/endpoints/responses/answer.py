"""OpenAI's response object and the events of its stream."""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.endpoints.logprobs import ChatLogprob
from trinity.server.endpoints.usage import LlamaTimings, PromptProgress


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """The text of a message. Responses have no citations, so ``annotations`` is empty."""

    text: str
    annotations: list[None] = []
    logprobs: list[ChatLogprob] = []


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """The text of reasoning."""

    text: str


Status = Literal["in_progress", "completed", "incomplete"]


class MessageOutput(msgspec.Struct, tag_field="type", tag="message"):
    """A message of the response."""

    id: str
    content: list[OutputText]
    status: Status
    role: Literal["assistant"] = "assistant"


class ReasoningOutput(msgspec.Struct, tag_field="type", tag="reasoning"):
    """The complete reasoning; it is neither summarized nor encrypted."""

    id: str
    content: list[ReasoningText]
    status: Status
    summary: list[None] = []
    encrypted_content: None = None


class CallOutput(msgspec.Struct, tag_field="type", tag="function_call"):
    """A function call, with the JSON text of its arguments."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class CustomOutput(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A call of a custom tool, with its input text."""

    id: str
    call_id: str
    name: str
    input: str
    status: Status


Item = MessageOutput | ReasoningOutput | CallOutput | CustomOutput


class InputDetails(msgspec.Struct):
    """How many tokens of the prompt came from the cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """How many tokens are reasoning."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """Token counts of the prompt and the response."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Incomplete(msgspec.Struct):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(msgspec.Struct):
    """Why a response failed."""

    message: str
    code: Literal["server_error"] = "server_error"


class Response(msgspec.Struct):
    """A response, with the parameters of its request."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    output: list[Item]
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float | None
    top_p: float | None
    presence_penalty: float
    frequency_penalty: float
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
    background: bool = False
    store: bool = False
    service_tier: Literal["default"] = "default"
    truncation: Literal["disabled"] = "disabled"
    token_hash: str | UnsetType = UNSET


class InputTokens(msgspec.Struct):
    """The number of tokens of a prompt."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class Numbered(msgspec.Struct, tag_field="type", kw_only=True):
    """An event of a stream."""

    sequence_number: int  # from 0
    timings: LlamaTimings | UnsetType = UNSET  # in the last event; in all deltas on request


class Created(Numbered, tag="response.created"):
    """The first event."""

    response: Response


class InProgress(Numbered, tag="response.in_progress"):
    """The prompt is accepted. It is repeated during prefill if progress is requested."""

    response: Response
    prompt_progress: PromptProgress | UnsetType = UNSET


class Completed(Numbered, tag="response.completed"):
    """The last event of a complete response."""

    response: Response


class CutShort(Numbered, tag="response.incomplete"):
    """The last event of a response that reached the token limit or was cancelled."""

    response: Response


class Failed(Numbered, tag="response.failed"):
    """The last event of a response that failed."""

    response: Response


class ItemAdded(Numbered, tag="response.output_item.added"):
    """The start of an item, which is empty."""

    output_index: int
    item: Item


class ItemDone(Numbered, tag="response.output_item.done"):
    """The end of an item."""

    output_index: int
    item: Item


class InItem(Numbered):
    """An event about an item."""

    item_id: str
    output_index: int


class PartAdded(InItem, tag="response.content_part.added"):
    """The start of the only part of a message or of reasoning, which is empty."""

    part: OutputText | ReasoningText
    content_index: int = 0


class PartDone(InItem, tag="response.content_part.done"):
    """The end of the part."""

    part: OutputText | ReasoningText
    content_index: int = 0


class OutputTextDelta(InItem, tag="response.output_text.delta"):
    """More text."""

    delta: str
    logprobs: list[ChatLogprob]
    content_index: int = 0


class TextDone(InItem, tag="response.output_text.done"):
    """The complete text."""

    text: str
    logprobs: list[ChatLogprob]
    content_index: int = 0


class ReasoningDelta(InItem, tag="response.reasoning_text.delta"):
    """More reasoning."""

    delta: str
    content_index: int = 0


class ReasoningDone(InItem, tag="response.reasoning_text.done"):
    """The complete reasoning."""

    text: str
    content_index: int = 0


class ArgumentsDelta(InItem, tag="response.function_call_arguments.delta"):
    """More of a function call's arguments."""

    delta: str


class ArgumentsDone(InItem, tag="response.function_call_arguments.done"):
    """The complete arguments of a function call."""

    name: str
    arguments: str


class InputDelta(InItem, tag="response.custom_tool_call_input.delta"):
    """The input of a custom tool, in one event."""

    delta: str


class InputDone(InItem, tag="response.custom_tool_call_input.done"):
    """The complete input of a custom tool."""

    input: str


StreamEvent = (
    Created | InProgress | ItemAdded | PartAdded | OutputTextDelta | TextDone | ReasoningDelta
    | ReasoningDone | ArgumentsDelta | ArgumentsDone | InputDelta | InputDone | PartDone | ItemDone
    | Completed | CutShort | Failed
)  # fmt: skip


def new_id(prefix: str) -> str:
    """Return a new id of a response or of an item."""
    return f"{prefix}_{secrets.token_hex(16)}"
