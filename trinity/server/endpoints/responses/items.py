"""The items of a response's input: messages, calls, their results and reasoning, as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from trinity.server.errors import ApiError
from trinity.server.schemas import Body, converted

Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Body, tag_field="type", tag="input_text"):
    """A text of whoever asks."""

    text: str


class OutputText(Body, tag_field="type", tag="output_text"):
    """A text of an earlier answer, with what came along with it."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class Refusal(Body, tag_field="type", tag="refusal"):
    """What an earlier answer said in place of one."""

    refusal: str

    @property
    def text(self) -> str:
        """Its text."""
        return self.refusal


class MessageItem(Body):
    """A message."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputText | OutputText | Refusal]
    type: Literal["message"] = "message"
    id: str | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Body):
    """A call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None


class FunctionCallOutputItem(Body):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[InputText]
    name: str | None = None
    id: str | None = None
    status: Status | None = None


class SummaryText(Body, tag_field="type", tag="summary_text"):
    """A summary of reasoning."""

    text: str


class ReasoningText(Body, tag_field="type", tag="reasoning_text"):
    """Reasoning itself."""

    text: str


class ReasoningItem(Body):
    """What the model thought before an earlier answer."""

    type: Literal["reasoning"]
    summary: list[SummaryText]
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Status | None = None


KINDS: dict[str, type[Body]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionCallOutputItem,
    "reasoning": ReasoningItem,
}


def messages_of(given: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as chat templates know it.

    An assistant's reasoning, text and calls that follow one another are one message. Raises:
    ApiError for an item of another kind, or that is malformed.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[dict[str, Any]] = []
    reasoning = ""
    for number, item in enumerate(given):
        found = _item(item, f"input[{number}]")
        if isinstance(found, ReasoningItem):
            reasoning += _reasoning(found, number)
            continue
        last = messages[-1] if messages else None
        if isinstance(found, FunctionCallItem):
            if last is None or last["role"] != "assistant" or reasoning:
                last = {"role": "assistant", "content": None}
                messages.append(last)
            last.setdefault("tool_calls", []).append(_call(found))
        else:
            messages.append(_message(found))
        if reasoning and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"] = reasoning
        reasoning = ""
    return messages


def _item(item: dict[str, Any], place: str) -> msgspec.Struct:
    kind = item.get("type", "message")
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ApiError(
            400,
            f"{place}.type is {kind!r:.80}; items of the input are {', '.join(KINDS)}",
            f"{place}.type",
        )
    return converted(item, known, place)


def _reasoning(item: ReasoningItem, number: int) -> str:
    texts = [part.text for part in item.content or item.summary]
    if item.encrypted_content and not texts:
        raise ApiError(
            400,
            f"input[{number}].encrypted_content: only reasoning in plain text can be read",
            f"input[{number}].encrypted_content",
        )
    return "\n".join(texts)


def _call(item: FunctionCallItem) -> dict[str, Any]:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _message(item: msgspec.Struct) -> dict[str, Any]:
    if isinstance(item, FunctionCallOutputItem):
        named = {} if item.name is None else {"name": item.name}
        content = _text(item.output)
        return {"role": "tool", **named, "tool_call_id": item.call_id, "content": content}
    assert isinstance(item, MessageItem)
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": _text(item.content)}


def _text(content: str | Sequence[InputText | OutputText | Refusal]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)
