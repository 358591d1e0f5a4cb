"""The child's side of `trinity.grammar.trial`: what is wrong with a grammar, and where."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from trinity.grammar.keywords import OTHER_WORDS
from trinity.grammar.limits import parser_limits, short

MOST_TRIALS = 200  # of parts of a schema, to find the one that is at fault
MAPS = ("properties", "patternProperties", "$defs", "definitions")
PARTS = (*MAPS, "additionalProperties", "items", "prefixItems", "allOf", "anyOf", "oneOf")

_BYTES = LLTokenizer("byte")
_LIMITS = parser_limits()


def answer(request: Any) -> Any:
    """What is wrong with a grammar, or nothing; and in a schema where."""
    kind, text = request
    if kind == "lark":
        return _fault(json.dumps({"grammars": [{"lark_grammar": text}]})), ""
    schema = json.loads(text)
    fault = _schema_fault(schema)
    return (fault, _at_fault(schema, [MOST_TRIALS]) if fault else "")


def _fault(grammar: str) -> str:
    """What llguidance says against a grammar."""
    matcher = LLMatcher(_BYTES, grammar, log_level=0, limits=_LIMITS)
    if not matcher.is_error() and not matcher.is_stopped():
        matcher.compute_bitmask()
    return short(matcher.get_error()) if matcher.is_error() else ""


def _schema_fault(schema: Any) -> str:
    return _fault(json.dumps({"grammars": [{"json_schema": schema}]}))


def _at_fault(root: Any, trials: list[int]) -> str:
    """The JSON pointer to the innermost part that is wrong by itself."""
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
    found: list[tuple[tuple[str, ...], Any]] = []
    for key in PARTS if isinstance(node, dict) else ():
        value = node.get(key)
        if isinstance(value, list):
            found += [((key, str(i)), part) for i, part in enumerate(value) if _was_given(part)]
        elif key in MAPS:
            found += [((key, name), part) for name, part in (value or {}).items()]
        elif value is not None:
            found.append(((key,), value))
    return found


def _was_given(part: Any) -> bool:
    """Whether a part has its place in the schema as it was given."""
    return not isinstance(part, dict) or part.get("$comment") != OTHER_WORDS
