"""The child process of `trinity.grammar.trial`: reads a grammar and compiles it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from llguidance import LLMatcher, LLTokenizer, regex_to_lark

from trinity.errors import InputError
from trinity.grammar import gbnf
from trinity.grammar.keywords import OTHER_WORDS
from trinity.grammar.lark import checked_lark, numbered
from trinity.grammar.limits import parser_limits, short
from trinity.grammar.schema import read_schema

MOST_TRIALS = 200  # compilations of parts of a schema, to find the faulty one
MAPS = ("properties", "patternProperties", "$defs", "definitions")
PARTS = (*MAPS, "additionalProperties", "items", "prefixItems", "allOf", "anyOf", "oneOf")

_BYTES = LLTokenizer("byte")
_LIMITS = parser_limits()


def answer(request: Any) -> Any:
    """Return why a grammar is refused, or "" and its text for llguidance."""
    language, source, options = request
    try:
        return LANGUAGES[language](source, **options)
    except InputError as error:
        return str(error), ""


def _of_schema(source: str, closed: bool, style: dict[str, Any]) -> tuple[str, str]:
    read = read_schema(source, closed=closed)
    read.check()
    if isinstance(read.schema, bool):
        read.schema = {} if read.schema else {"enum": []}
    schema = {**read.schema, "x-guidance": style}
    return _schema_refusal(schema), json.dumps(schema)


def _of_lark(source: str, style: dict[str, Any]) -> tuple[str, str]:
    text = checked_lark(source, style)
    return _lark_refusal(text, "the grammar cannot be used"), text


def _of_gbnf(source: str) -> tuple[str, str]:
    text = gbnf.lark_of(source)
    return _lark_refusal(text, "the grammar cannot be used", is_source=False), text


def _of_regex(source: str) -> tuple[str, str]:
    text = regex_to_lark(source, "d")
    text = f"start: /{text}/" if text else 'start: ""'
    return _lark_refusal(text, "the regular expression cannot be used", is_source=False), text


def _compiled(source: str, kind: str) -> tuple[str, str]:
    if kind == "json_schema":
        return _schema_refusal(json.loads(source)), ""
    return _lark_refusal(source, "the grammar cannot be used"), ""


# Each takes a source and options and returns a refusal or "", and the text for llguidance.
LANGUAGES: dict[str, Callable[..., tuple[str, str]]] = {
    "json_schema": _of_schema,
    "lark": _of_lark,
    "gbnf": _of_gbnf,
    "regex": _of_regex,
    "compiled": _compiled,
}


def _lark_refusal(text: str, what: str, *, is_source: bool = True) -> str:
    """Return why a Lark grammar is refused. ``is_source``: it is the client's own text."""
    grammar = numbered(text, lambda name: 65)
    fault = _fault(json.dumps({"grammars": [{"lark_grammar": grammar}]}), is_source=is_source)
    return f"{what}: {fault}" if fault else ""


def _schema_refusal(schema: Any) -> str:
    fault = _schema_fault(schema)
    if not fault:
        return ""
    return f"the JSON schema cannot be enforced: {_at_fault(schema, [MOST_TRIALS])}: {fault}"


def _fault(grammar: str, *, is_source: bool = True) -> str:
    """Return llguidance's error for a grammar."""
    matcher = LLMatcher(_BYTES, grammar, log_level=0, limits=_LIMITS)
    if not matcher.is_error() and not matcher.is_stopped():
        matcher.compute_bitmask()
    return short(matcher.get_error(), is_source=is_source) if matcher.is_error() else ""


def _schema_fault(schema: Any) -> str:
    return _fault(json.dumps({"grammars": [{"json_schema": schema}]}))


def _at_fault(root: Any, trials: list[int]) -> str:
    """Return the JSON pointer to the innermost part that fails alone."""
    node, path = root, "#"
    while True:
        for step, part in _parts(node):
            trials[0] -= 1
            if trials[0] < 0:
                return path
            below = f"{path}/" + "/".join(s.replace("~", "~0").replace("/", "~1") for s in step)
            if _schema_fault({**_definitions(root), "allOf": [part]}):
                node, path = part, below
                break
        else:
            return path


def _definitions(root: Any) -> Any:
    return {key: root[key] for key in ("$defs", "definitions") if key in root}


def _parts(node: Any) -> list[tuple[tuple[str, ...], Any]]:
    parts: list[tuple[tuple[str, ...], Any]] = []
    for key in PARTS if isinstance(node, dict) else ():
        value = node.get(key)
        if isinstance(value, list):
            parts += [((key, str(i)), part) for i, part in enumerate(value) if _was_given(part)]
        elif key in MAPS:
            parts += [((key, name), part) for name, part in (value or {}).items()]
        elif value is not None:
            parts.append(((key,), value))
    return parts


def _was_given(part: Any) -> bool:
    """Whether a part exists in the schema that the client sent."""
    return not isinstance(part, dict) or part.get("$comment") != OTHER_WORDS
