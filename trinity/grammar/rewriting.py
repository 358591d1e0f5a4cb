"""Keywords that are rewritten before a schema is read.

They are ``nullable``, ``propertyNames``, and limits in Python's spelling, such as ``min_items``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trinity.grammar.keywords import ANNOTATIONS, COUNTS, NUMBERS

_OF_NAMES = ANNOTATIONS | {"type", "enum", "const"}


def rewritten(node: dict[str, Any]) -> list[str]:
    """Express keywords of one schema by others, and return the names of those keywords."""
    return [key for key, rule in _RULES.items() if key in node and rule(node)]


def _nullable(node: dict[str, Any]) -> bool:
    """Replace OpenAPI's ``nullable`` and its single type by a list of that type and null."""
    kind, values = node.get("type"), node.get("enum", [])
    if node["nullable"] is not True or not isinstance(kind, str) or "const" in node:
        return False
    if not isinstance(values, list):
        return False
    del node["nullable"]
    node["type"] = sorted({kind, "null"})
    if "enum" in node and None not in values:
        node["enum"] = [*values, None]
    return True


def _property_names(node: dict[str, Any]) -> bool:
    """Replace ``propertyNames`` by ``properties`` if it lists the allowed names.

    Libraries write such a list for dictionaries whose keys are an enum.
    """
    rule, given = node["propertyNames"], node.get("properties", {})
    if not isinstance(rule, dict) or not isinstance(given, dict) or "patternProperties" in node:
        return False
    if rule.keys() - _OF_NAMES or rule.get("type", "string") != "string":
        return False
    if "enum" not in rule and "const" not in rule:  # every name is text
        del node["propertyNames"]
        return True
    names = [rule["const"]] if "const" in rule else rule["enum"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return False
    if given.keys() - set(names) or ("const" in rule and "enum" in rule):
        return False
    del node["propertyNames"]
    others = node.get("additionalProperties", True)
    node["properties"] = given | {name: others for name in names if name not in given}
    node["additionalProperties"] = False
    return True


def _respelled(name: str) -> Callable[[dict[str, Any]], bool]:
    """Replace Python's spelling of ``name``; browser-use and Google's libraries write it."""
    spelling = _python(name)

    def rule(node: dict[str, Any]) -> bool:
        node.setdefault(name, node.pop(spelling))
        return True

    return rule


def _python(name: str) -> str:
    """A name in Python's spelling: min_items for minItems."""
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


_RULES = {
    "nullable": _nullable,
    "propertyNames": _property_names,
    **{
        _python(name): _respelled(name)
        for name in sorted(COUNTS | NUMBERS | {"multipleOf"})
        if not name.islower()
    },
}
