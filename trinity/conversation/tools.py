"""Tools that a model may call, in OpenAI's format, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trinity.errors import InputError

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call; ``parameters`` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)


def read_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Read tools of /v1/chat/completions: {"type": "function", "function": {...}}.

    Raises InputError for other formats, and for two tools with the same name.
    """
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise InputError(
            f"tools is {tools!r:.80}; it must be a list of objects such as "
            '{"type": "function", "function": {"name": "get_time"}}'
        )
    read = tuple(_tool(number, tool) for number, tool in enumerate(tools))
    names = [known.name for known in read]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two tools have the name {twice!r}; give one another name")
    return read


def chosen(tools: tuple[Tool, ...], choice: str) -> tuple[Tool, ...]:
    """Return the tools that a response may call, for "none", "auto", "required" or a name.

    Raises InputError for a choice that cannot be satisfied.
    """
    if choice == "none":
        return ()
    if choice == "auto":
        return tools
    if not tools:
        raise InputError(f"tool_choice is {choice!r}, but there are no tools; give tools")
    if choice == "required":
        return tools
    named = tuple(tool for tool in tools if tool.name == choice)
    if not named:
        known = ", ".join(tool.name for tool in tools)
        raise InputError(
            f"tool_choice is {choice!r:.80}, which is not one of the tools; they are {known:.400}"
        )
    return named


def _tool(number: int, tool: object) -> Tool:
    where = f"tools[{number}]"
    if not isinstance(tool, Mapping):
        raise InputError(f"{where} is {type(tool).__name__}; it must be an object")
    if tool.get("type", "function") != "function":
        raise InputError(f'{where}.type is {tool["type"]!r}; only "function" is supported')
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InputError(f'{where} has no "function", an object with the name of the tool')
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{where}.function.name is {name!r}; it must be 1 to 64 letters, digits, '_', '-', '.'"
        )
    description, parameters = function.get("description"), function.get("parameters")
    if description is not None and not isinstance(description, str):
        raise InputError(f"{where}.function.description is not text")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InputError(f"{where}.function.parameters is not a JSON schema")
    return Tool(name, description or "", dict(parameters or _EMPTY))
