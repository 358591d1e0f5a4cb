"""Build parts of Lark grammars in llguidance's syntax."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from trinity.conversation.tools import Tool
from trinity.grammar.schema import closed_schema

_MARKS = re.compile(r"(<[^<>\s]+>)")


def text(value: str) -> str:
    """Return a literal text."""
    return json.dumps(value)


def mark(value: str | int) -> str:
    """Return a delimiter, which is a token or a text."""
    return f"<[{value}]>" if isinstance(value, int) else text(value)


def pieces(value: str, of: Callable[[str], str | int]) -> str:
    """Return a text in which delimiters may be tokens."""
    return " ".join(mark(of(part)) for part in _MARKS.split(value) if part)


def spelled(value: str, mark: Callable[[str], str]) -> str:
    """Return a text whose delimiters ``mark`` writes."""
    parts = (part for part in _MARKS.split(value) if part)
    return " ".join(mark(part) if _MARKS.fullmatch(part) else text(part) for part in parts)


def schema(tool: Tool) -> str:
    """Return the schema of a tool's arguments as JSON; no other names are allowed."""
    return "%json " + json.dumps(closed_schema(tool.parameters))


def repeated(call: str, between: str, parallel: bool) -> str:
    """Return calls in sequence, or one call."""
    return f"calls: {call} ({between} {call})*\n" if parallel else f"calls: {call}\n"


def for_each(
    tools: Sequence[Tool], rule: str, body: Callable[[Tool], str], arguments: bool = True
) -> str:
    """Return ``rule`` as a choice of the tools' bodies, with a rule for ``{arguments}`` in each."""
    names = " | ".join(f"{rule}_{i}" for i in range(len(tools)))
    lines = [f"{rule}: {names}"]
    for i, tool in enumerate(tools):
        lines.append(f"{rule}_{i}: {body(tool).replace('{arguments}', f'arguments_{i}')}")
        if arguments:
            lines.append(f"arguments_{i}: {schema(tool)}")
    return "\n".join(lines) + "\n"
