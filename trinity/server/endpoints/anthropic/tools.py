"""Anthropic's tools and their conversion to functions for chat templates.

Tools that Anthropic's models know have no schema in the request. The client's tools (bash, text
editor, memory) get the schema from Anthropic's documentation. The tools of Anthropic's servers
(web search, code execution) are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from trinity.server.endpoints.anthropic.blocks import CacheControl
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body, encode

_VERSION = re.compile(r"(?P<kind>[a-z_0-9]+?)_(?P<date>20\d{6})")
_SEES = ("computer", "computer_toolset", "browser_toolset")
# Since this version, insert's text is called insert_text instead of new_str.
_INSERT_TEXT = 20250728


class AnthropicTool(Body):
    """A tool that the model may call."""

    name: str = ""
    input_schema: dict[str, Any] | None = None  # JSON schema of the arguments
    description: str | None = None
    type: str | None = None  # "custom", or the name and version of Anthropic's own tool
    strict: bool | None = None
    input_examples: list[dict[str, Any]] | None = None
    cache_control: CacheControl = None
    eager_input_streaming: Ignorable[bool | None] = None  # arguments always stream
    defer_loading: Ignorable[Literal[False] | None] = None  # all tools are in the prompt
    allowed_callers: Ignorable[list[Literal["direct"]] | None] = None

    def function(self, place: str) -> dict[str, Any] | None:
        """Return the function of the tool at ``place``, or None for a tool of Anthropic's servers.

        Raises: ApiError for a tool without a schema, or one that returns images.
        """
        name, description, schema = self.name, self.description, self.input_schema
        if self.type not in (None, "custom"):
            version = _VERSION.fullmatch(self.type)
            kind = self.type if version is None else version["kind"]
            if kind in _SEES:
                raise ApiError(
                    400,
                    f"{place}.type: {self.type:.80} gives images, which are not supported: "
                    "the model reads only text",
                    f"{place}.type",
                )
            known = _CLIENT_TOOLS.get(kind)
            if known is None or version is None:
                return None
            name = name or kind
            description, schema = known(int(version["date"]))
        if not name or schema is None:
            missing = "input_schema" if name else "name"
            raise ApiError(400, f"{place}.{missing} is missing", f"{place}.{missing}")
        for example in self.input_examples or ():
            description = f"{description or ''}\nExample: {encode(example).decode()}".lstrip()
        function: dict[str, Any] = {"name": name}
        if description is not None:
            function["description"] = description
        function["parameters"] = schema
        if self.strict is not None:
            function["strict"] = self.strict
        return {"type": "function", "function": function}


def functions_of(ignored: Ignored, tools: Sequence[AnthropicTool] | None) -> list[dict[str, Any]]:
    """Convert tools for chat templates; ignore those of Anthropic's servers.

    Raises: as ``AnthropicTool.function``.
    """
    functions = []
    for number, tool in enumerate(tools or ()):
        function = tool.function(f"tools[{number}]")
        if function is None:
            ignored.add(f"tools[{number}]")
        else:
            functions.append(function)
    return functions


def _object(required: Sequence[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _bash(_: int) -> tuple[str, dict[str, Any]]:
    restart = {"type": "boolean", "description": "True restarts the shell; no command then."}
    schema = _object((), command=_text("The command to run."), restart=restart)
    return "Run a command in a bash shell, which keeps its state between calls.", schema


def _editing(version: int) -> dict[str, dict[str, Any]]:
    """Return the arguments that the text editor and memory share."""
    properties = {
        "path": _text("Path of the file or directory."),
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "view: first and last line, from 1; -1 is the last one of the file.",
        },
        "file_text": _text("create: the text of the file."),
        "old_str": _text("str_replace: the text to replace, which occurs once."),
        "new_str": _text("str_replace: the new text."),
        "insert_line": {
            "type": "integer",
            "description": "insert: the line after which to insert; 0 is the beginning.",
        },
    }
    if version < _INSERT_TEXT:
        return properties | {"new_str": _text("str_replace and insert: the new text.")}
    return properties | {"insert_text": _text("insert: the new text.")}


def _command(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names), "description": "What to do."}


def _text_editor(version: int) -> tuple[str, dict[str, Any]]:
    undo = () if version >= 20250429 else ("undo_edit",)
    command = _command("view", "create", "str_replace", "insert", *undo)
    schema = _object(("command", "path"), command=command, **_editing(version))
    return "View, create and edit text files.", schema


def _memory(version: int) -> tuple[str, dict[str, Any]]:
    command = _command("view", "create", "str_replace", "insert", "delete", "rename")
    schema = _object(
        ("command",), command=command, **_editing(version),
        old_path=_text("rename: the path so far."), new_path=_text("rename: the new path."),
    )  # fmt: skip
    return "Read and change the files of your memory, below /memories.", schema


_CLIENT_TOOLS = {"bash": _bash, "text_editor": _text_editor, "memory": _memory}
