"""Tools and tool choice of OpenAI's chat completions and responses.

Both APIs use the same code: the fields of a function may be in ``function`` (chat) or next to
``type`` (responses). A custom tool, whose input is free text, becomes a function with the one
argument ``input``. OpenAI's servers run tools of other types; here they are ignored, unless the
request forces one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.schemas import Body, converted

WORDS = {"none": "none", "auto": "auto", "required": "required", "any": "required"}
INPUT = "input"
MOST_TOOLS = 1024
_CUSTOM_PARAMETERS = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}


class Function(Body):
    """A function that may be called; ``parameters`` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class GrammarText(Body):
    """The grammar of a custom tool's input."""

    definition: str
    syntax: str = "lark"


class CustomFormat(Body):
    """The form of a custom tool's input: any text, or a grammar's (nested in chat completions)."""

    type: str = "text"
    grammar: GrammarText | None = None
    definition: str | None = None
    syntax: str = "lark"

    @property
    def given(self) -> GrammarText | None:
        """The grammar, if there is one."""
        if self.definition is not None:
            return GrammarText(self.definition, self.syntax)
        return self.grammar


class Custom(Body):
    """A custom tool."""

    name: str
    description: str | None = None
    format: CustomFormat | None = None


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools that may be called, and the choice among them, as a ChatJob takes them.

    ``functions`` have the form of chat completions. ``custom`` are the names of those that the
    client knows as custom tools. ``single``: the client uses ``functions`` and ``function_call``,
    which tools have replaced, and reads one call.
    """

    functions: Sequence[Mapping[str, Any]] = field(default_factory=list)
    custom: frozenset[str] = field(default_factory=frozenset)
    choice: str = "auto"
    single: bool = False

    @property
    def names(self) -> list[str]:
        """The names of all tools."""
        return [function["function"]["name"] for function in self.functions]


def toolbox(
    ignored: Ignored, tools: Sequence[dict[str, Any]] | None, choice: str | dict[str, Any] | None
) -> Toolbox:
    """Return the tools of a request. Raises: ApiError for a malformed tool or an invalid choice.

    An unknown type of tool is noted as ignored.
    """
    check_count(tools or (), "tools")
    functions, custom = [], set()
    for number, tool in enumerate(tools or ()):
        where = f"tools[{number}]"
        kind = tool.get("type", "function")
        if kind == "function":
            functions.append(_listed(converted(ignored, _inner(tool, kind), Function, where)))
        elif kind == "custom":
            made = converted(ignored, _inner(tool, kind), Custom, where)
            functions.append(_listed(_as_function(ignored, made, where)))
            custom.add(made.name)
        else:
            ignored.add(where)
    return chosen(Toolbox(functions, frozenset(custom)), choice)


def check_count(tools: Sequence[object], where: str) -> None:
    """Raise ApiError if there are too many tools."""
    if len(tools) > MOST_TOOLS:
        raise ApiError(
            400, f"{where} has {len(tools)} entries; at most {MOST_TOOLS} are allowed", where
        )


def functions_box(
    ignored: Ignored, functions: Sequence[dict[str, Any]], choice: str | dict[str, Any] | None
) -> Toolbox:
    """Return the tools of OpenAI's older ``functions``. Raises: as ``toolbox``."""
    check_count(functions, "functions")
    listed = [
        _listed(converted(ignored, function, Function, f"functions[{number}]"))
        for number, function in enumerate(functions)
    ]
    if isinstance(choice, dict):
        choice = {"type": "function", **choice}
    return replace(chosen(Toolbox(listed), choice, "function_call"), single=True)


def chosen(
    box: Toolbox, choice: str | dict[str, Any] | None, param: str = "tool_choice"
) -> Toolbox:
    """The toolbox with the request's choice. Raises: ApiError for one that cannot be met."""
    if choice is None:
        return box
    word = choice if isinstance(choice, str) else choice.get("type")
    if not isinstance(word, str):
        word = "an object without a type"
    if word in WORDS:
        if WORDS[word] == "required" and not box.functions:
            raise ApiError(400, f"{param} is {word!r}, and there is no tool to call", param)
        return replace(box, choice=WORDS[word])
    if isinstance(choice, str) or word not in ("function", "custom", "tool", "allowed_tools"):
        raise ApiError(
            400,
            f"{param} is {word!r:.80}; it can be {', '.join(WORDS)}, a function, a custom "
            "tool or allowed_tools",
            param,
        )
    if word == "allowed_tools":
        return _allowed(box, choice.get(word, choice), param)
    return replace(box, choice=_known(box.names, choice, param))


def input_of(arguments: str) -> str:
    """Return a custom tool's input from a call's arguments; those cut off stay as they are."""
    try:
        given = json.loads(arguments)[INPUT]
    except (ValueError, KeyError, TypeError):
        return arguments
    return given if isinstance(given, str) else json.dumps(given)


def arguments_of(text: str) -> str:
    """Return the arguments of a call of a custom tool with this input."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def _allowed(box: Toolbox, choice: Any, param: str) -> Toolbox:
    """Restrict the tools to those that allowed_tools names. Raises: ApiError."""
    mode = choice.get("mode", "auto") if isinstance(choice, dict) else None
    listed = choice.get("tools") if isinstance(choice, dict) else None
    if not isinstance(mode, str) or mode not in WORDS or not isinstance(listed, list) or not listed:
        raise ApiError(400, f"{param}: allowed_tools needs mode and tools", param)
    check_count(listed, param)
    known = frozenset(box.names)
    names = {
        _known(known, tool, param)
        for tool in listed
        if isinstance(tool, dict) and tool.get("type", "function") in ("function", "custom")
    }
    kept = [tool for tool in box.functions if tool["function"]["name"] in names]
    return chosen(replace(box, functions=kept), mode, param)


def _known(names: Collection[str], choice: dict[str, Any], param: str) -> str:
    """The name of the tool that a choice names, one of ``names``. Raises: ApiError."""
    inner = next((choice[key] for key in ("function", "custom") if key in choice), choice)
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str) or name not in names:
        raise ApiError(400, f"{param} names {name!r:.80}, which is not one of the tools", param)
    return name


def _inner(tool: dict[str, Any], kind: str) -> dict[str, Any]:
    """The description of a tool, nested or not."""
    if isinstance(tool.get(kind), dict):
        return tool[kind]  # type: ignore[no-any-return]
    return {name: value for name, value in tool.items() if name != "type"}


def _listed(function: Function) -> dict[str, Any]:
    given = {
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters or {"type": "object", "properties": {}},
        "strict": function.strict,
    }
    kept = {name: value for name, value in given.items() if value is not None}
    return {"type": "function", "function": kept}


def _as_function(ignored: Ignored, tool: Custom, where: str) -> Function:
    """A custom tool as a function; its grammar is part of the description, and not enforced."""
    grammar = None if tool.format is None else tool.format.given
    text = tool.description or ""
    if grammar is not None:
        ignored.add(f"{where}.format")
        text += f"\n\nThe input must match this grammar ({grammar.syntax}):\n{grammar.definition}"
    return Function(tool.name, text.strip() or None, _CUSTOM_PARAMETERS)
