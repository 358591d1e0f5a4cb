"""A conversation as the values that Ollama passes to its templates.

Source: Ollama's template/template.go, convertMessagesForTemplate and collate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trinity.errors import InputError
from trinity.tokenizers.go_template.values import Map, Slice, Struct, Value, from_json

NO_CALLS = Slice.of(None)


@dataclass(frozen=True, slots=True)
class TemplateMessage:
    """A message; consecutive ones of one role are joined."""

    role: str
    content: str
    thinking: str = ""
    tool_calls: Slice = NO_CALLS
    tool_name: str = ""
    tool_call_id: str = ""

    def value(self) -> Struct:
        """Return the value that a template sees."""
        fields: dict[str, Value] = {
            "Role": self.role,
            "Content": self.content,
            "Thinking": self.thinking,
            "Images": Slice.of(None),
            "ToolCalls": self.tool_calls,
            "ToolName": self.tool_name,
            "ToolCallID": self.tool_call_id,
        }
        return Struct(fields, tuple(fields), is_pointer=True)


def read_messages(messages: Sequence[Mapping[str, object]]) -> list[TemplateMessage]:
    """Read messages with "role", "content" and the other fields that Ollama knows.

    Raises InputError for a value of another type.
    """
    return [
        TemplateMessage(
            _text(message, "role").lower(),
            _text(message, "content"),
            _text(message, "thinking"),
            _tool_calls(message.get("tool_calls")),
            _text(message, "tool_name"),
            _text(message, "tool_call_id"),
        )
        for message in messages
    ]


def collated(messages: Sequence[TemplateMessage]) -> tuple[str, list[TemplateMessage]]:
    """Join all system messages to one text, and adjacent messages of one role.

    They are separated by a blank line; tools' results are not joined.
    """
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    texts: list[list[str]] = []
    firsts: list[TemplateMessage] = []
    for message in messages:
        if firsts and firsts[-1].role == message.role != "tool":
            texts[-1].append(message.content)
        else:
            firsts.append(message)
            texts.append([message.content])
    return system, [
        replace(first, content="\n\n".join(parts))
        for first, parts in zip(firsts, texts, strict=True)
    ]


def characters(messages: Sequence[TemplateMessage]) -> int:
    """Return the number of characters in the messages, without tool calls."""
    return sum(len(message.content) + len(message.thinking) for message in messages)


def _text(message: Mapping[str, object], key: str) -> str:
    value = message.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(
            f"a message's \"{key}\" is {type(value).__name__}; the model's Go template needs text"
        )
    return value


def _tool_calls(calls: object) -> Slice:
    if calls is None or calls == []:
        return NO_CALLS
    if not isinstance(calls, Sequence) or not all(isinstance(call, Mapping) for call in calls):
        raise InputError('a message\'s "tool_calls" must be a list of objects')
    return Slice.of([_tool_call(call) for call in calls])


def _tool_call(call: Mapping[str, object]) -> Struct:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise InputError('a tool call has no "function"')
    arguments, index = function.get("arguments"), function.get("index", 0)
    if not isinstance(arguments, Mapping | None) or type(index) is not int:
        raise InputError(
            'the "arguments" of a tool call must be an object, and its "index" an integer'
        )
    given = from_json(arguments or {})
    assert isinstance(given, Map)
    called: dict[str, Value] = {
        "Index": index,
        "Name": _text(function, "name"),
        "Arguments": Map(given.values, as_json=True, is_nil=arguments is None),
    }
    fields: dict[str, Value] = {"ID": _text(call, "id"), "Function": Struct(called, tuple(called))}
    return Struct(fields, tuple(fields))
