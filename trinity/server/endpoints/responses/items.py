"""The input items of a response and their conversion to messages for chat templates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from trinity.server.endpoints.messages import Content, content_of
from trinity.server.endpoints.tools import arguments_of
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body, converted

IgnoredText = Ignorable[str | None]


class StoredItem(Body, kw_only=True):
    """An item that a response may have returned, with its id and state there."""

    id: IgnoredText = None
    status: IgnoredText = None


class MessageItem(StoredItem):
    """A message."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[str | dict[str, Any]]
    type: Literal["message"] = "message"
    phase: IgnoredText = None


class FunctionCallItem(StoredItem):
    """A function call of an earlier response."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str | dict[str, Any] = "{}"


class CustomCallItem(StoredItem):
    """A call of a custom tool in an earlier response."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str = ""


class OutputItem(StoredItem):
    """The result of a call: a text, several texts, or an object, which becomes JSON.

    Without ``call_id`` it is the result of the last call.
    """

    call_id: str | None = None
    output: str | list[str | dict[str, Any]] | dict[str, Any] | None = None
    type: str | None = None
    name: str | None = None


class SummaryText(Body):
    """A summary of reasoning, or its text."""

    text: str
    type: IgnoredText = None


class ReasoningItem(StoredItem):
    """Reasoning of an earlier response."""

    type: Literal["reasoning"]
    summary: list[SummaryText] | None = None
    content: list[SummaryText] | None = None
    encrypted_content: str | None = None


KINDS: dict[str, type[Body]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "custom_tool_call": CustomCallItem,
    "function_call_output": OutputItem,
    "custom_tool_call_output": OutputItem,
    "reasoning": ReasoningItem,
}
# OpenAI's tools that the client runs: their calls become function calls with these arguments.
CLIENTS_TOOLS = {"local_shell": "action", "shell": "action", "apply_patch": "operation"}


def items_of(given: str | Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return a request's input as items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given or ())


def messages_of(
    ignored: Ignored, items: Sequence[dict[str, Any]], first: int = 0
) -> list[dict[str, Any]]:
    """Convert items to messages for chat templates.

    Consecutive reasoning, text and calls of the assistant become one message. Other kinds of items
    are noted as ignored. ``first``: how many items precede the request's own, which errors number
    from 0. Raises: ApiError for a malformed item.
    """
    messages: list[dict[str, Any]] = []
    reasoning = ""
    for number, item in enumerate(items):
        where = f"input[{number - first}]"
        known = _item(ignored, item, where)
        if known is None:
            continue
        if isinstance(known, ReasoningItem):
            reasoning += _reasoning(ignored, known, where)
            continue
        last = messages[-1] if messages else None
        if isinstance(known, FunctionCallItem | CustomCallItem):
            if last is None or last["role"] != "assistant" or reasoning:
                last = {"role": "assistant", "content": None}
                messages.append(last)
            last.setdefault("tool_calls", []).append(_call(known))
        else:
            messages.append(_message(ignored, known, where))
        if reasoning and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"] = reasoning
        reasoning = ""
    return messages


def _item(ignored: Ignored, item: dict[str, Any], where: str) -> msgspec.Struct | None:
    """Decode an item; None for a kind without text for the model."""
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        raise ApiError(
            400, f"{where}.type is {kind!r:.80}; only text is supported", f"{where}.type"
        )
    known = KINDS.get(kind)
    if known is not None:
        return converted(ignored, item, known, where)
    tool, is_output = kind.removesuffix("_output"), kind.endswith("_output")
    arguments = CLIENTS_TOOLS.get(tool.removesuffix("_call"))
    if arguments is None or not isinstance(item.get("call_id"), str):
        ignored.add(where)
        return None
    if is_output:
        return OutputItem(item["call_id"], _as_text(item.get("output")))
    called = _as_text(item.get(arguments) or {})
    return FunctionCallItem("function_call", item["call_id"], tool.removesuffix("_call"), called)


def _reasoning(ignored: Ignored, item: ReasoningItem, where: str) -> str:
    texts = [part.text for part in item.content or item.summary or ()]
    if item.encrypted_content and not texts:
        ignored.add(f"{where}.encrypted_content")
    return "\n".join(texts)


def _call(item: FunctionCallItem | CustomCallItem) -> dict[str, Any]:
    if isinstance(item, CustomCallItem):
        arguments = arguments_of(item.input)
    else:
        arguments = _as_text(item.arguments)
    function = {"name": item.name, "arguments": arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _message(ignored: Ignored, item: msgspec.Struct, where: str) -> dict[str, Any]:
    if isinstance(item, OutputItem):
        given = {"name": item.name, "tool_call_id": item.call_id}
        content = _content(ignored, item.output, f"{where}.output")
        named = {key: value for key, value in given.items() if value is not None}
        return {"role": "tool", **named, "content": content}
    assert isinstance(item, MessageItem)
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": _content(ignored, item.content, f"{where}.content")}


def _content(
    ignored: Ignored,
    content: str | Sequence[str | dict[str, Any]] | Mapping[str, Any] | None,
    at: str,
) -> Content:
    if isinstance(content, list):
        return content_of(ignored, content, at)
    return _as_text(content)


def _as_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON; None is an empty text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
