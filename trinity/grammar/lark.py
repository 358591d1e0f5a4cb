"""Checks of grammars in llguidance's Lark before llguidance reads them.

Source of the syntax: llguidance, docs/syntax.md and parser/src/lark/lexer.rs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from trinity.errors import InputError
from trinity.grammar.limits import DEEPEST, json_fault
from trinity.grammar.schema import read_schema

_PART: Final = re.compile(
    r"""(?P<skip>(?:\#|//)[^\n]*|"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/)
    |(?P<json>%json\b)|(?P<block>%(?:regex|llguidance|lark)\b)
    |(?P<name><[^<>\s]+>)|(?P<open>[(\[])|(?P<close>[)\]])
    |(?P<option>\b(?:temperature|stop)\b)(?=\s*=)""",
    re.VERBOSE,
)
_NUMBERS: Final = re.compile(r"<\[\^?[0-9,\-*]+\]>")
_HOW: Final = {
    "temperature": "it is an option of the request, for the whole response",
    "stop": "generated text is not taken back; end the rule with the text instead",
}


def checked_lark(text: str, style: dict[str, Any]) -> str:
    """Return a grammar with its JSON schemas prepared; ``style`` is how JSON is written.

    Raises InputError for what llguidance would ignore, and for brackets nested too deeply.
    """
    depth = 0

    def seen(kind: str, syntax: str) -> None:
        nonlocal depth
        depth += {"open": 1, "close": -1}.get(kind, 0)
        if depth > DEEPEST:
            raise InputError(f"the grammar has more than {DEEPEST} levels of brackets")
        if kind == "option":
            raise InputError(f"the grammar contains {syntax}: {_HOW[syntax]}")

    def schema(value: Any) -> str:
        read = read_schema(value)
        read.check()
        if isinstance(read.schema, dict):
            read.schema["x-guidance"] = style
        return json.dumps(read.schema)

    return _scanned(text, seen=seen, schema=schema)


def numbered(text: str, number: Callable[[str], int]) -> str:
    """Replace token texts, such as <|call|>, by the ids that ``number`` returns."""

    def name(token: str) -> str:
        return token if _NUMBERS.fullmatch(token) else f"<[{number(token)}]>"

    return _scanned(text, name=name)


def _scanned(
    text: str,
    *,
    name: Callable[[str], str] = str,
    seen: Callable[[str, str], None] = lambda kind, token: None,
    schema: Callable[[Any], str] | None = None,
) -> str:
    """Replace names and schemas; strings, expressions and comments stay."""
    out: list[str] = []
    at = 0
    while match := _PART.search(text, at):
        kind, token = str(match.lastgroup), match[0]
        out.append(text[at : match.start()])
        at = match.end()
        seen(kind, token)
        if kind in ("json", "block") and not token.startswith("%lark"):
            start = len(text) - len(text[at:].lstrip())
            try:
                value, end = json.JSONDecoder().raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                fault = json_fault(error)
                raise InputError(f"the grammar has no valid JSON after {token}: {fault}") from None
            kept = schema is None or kind == "block"
            token = f"{token} {text[start:end] if kept or schema is None else schema(value)}"
            at = end
        out.append(name(token) if kind == "name" else token)
    return "".join(out) + text[at:]
