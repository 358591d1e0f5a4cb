"""Tools as the values that Ollama passes to its templates.

Keys without a field there stay in the JSON that a template prints; Ollama drops them. Source:
Ollama's api/types.go, Tool, ToolFunction, ToolFunctionParameters and ToolProperty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trinity.errors import InputError
from trinity.tokenizers.go_template.values import Map, Slice, Struct, Value, from_json

_PROPERTY = {"anyOf": "AnyOf", "type": "Type", "items": "Items", "description": "Description",
             "enum": "Enum"}  # fmt: skip
_PARAMETERS = {"type": "Type", "$defs": "Defs", "items": "Items", "required": "Required"}


def read_tools(tools: Sequence[Mapping[str, object]] | None) -> Slice:
    """Read tools in OpenAI's format. Raises InputError for others."""
    if not tools:
        return Slice.of(None, as_json=True)
    return Slice.of([_tool(tool) for tool in tools], as_json=True)


def _tool(tool: Mapping[str, object]) -> Struct:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InputError('a tool has no "function"')
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise InputError("the parameters of a tool must be an object")
    properties = parameters.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise InputError("the properties of a tool's parameters must be an object")
    shown = _struct({k: v for k, v in parameters.items() if k != "properties"}, _PARAMETERS)
    listed = Map({str(key): _property(value) for key, value in properties.items()})
    about: dict[str, Value] = {
        "Name": _text(function.get("name")),
        "Description": _text(function.get("description")),
        "Parameters": Struct(
            {**shown.fields, "Properties": listed}, (*shown.names, "properties"), as_json=True
        ),
    }
    whole: dict[str, Value] = {
        "Type": "function",
        "Function": Struct(about, ("name", "?description", "parameters"), as_json=True),
    }
    return Struct(whole, ("type", "function"), as_json=True)


def _property(value: object) -> Value:
    return _struct(value, _PROPERTY) if isinstance(value, Mapping) else from_json(value)


def _struct(schema: Mapping[str, object], known: Mapping[str, str]) -> Struct:
    """Return the known fields, in order, then the others under their own names."""
    fields: dict[str, Value] = {}
    names: list[str] = []
    for key, field in known.items():
        text = key in ("type", "description")
        empty: Value = "" if text else Slice.of(None)
        given = schema.get(key)
        fields[field] = empty if given is None else from_json(given)
        names.append("?" + key)
    for key, inner in schema.items():
        if key not in known:
            fields[str(key)] = from_json(inner)
            names.append(str(key))
    return Struct(fields, tuple(names))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
