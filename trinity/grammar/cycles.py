"""References of a schema that form a cycle for the same value.

Such a schema has no meaning: JSON Schema, draft 2020-12, core, section 9.4.1, forbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

LONGEST_SHOWN: Final = 10  # references of a cycle in a message


def cycle_from(reference: str, resolve: Callable[[str], Any]) -> list[str]:
    """Return the references of a cycle from ``reference`` back to it, or an empty list.

    Only $ref and allOf are followed: they apply to the same value. ``resolve`` returns the target
    of a reference, or None.
    """
    left = [([reference], ref) for ref in _references(resolve(reference))]
    seen: set[str] = set()
    while left:
        path, current = left.pop()
        if current == reference:
            return [*path, current]
        if current not in seen:
            seen.add(current)
            left += [([*path, current], ref) for ref in _references(resolve(current))]
    return []


def told(cycle: list[str]) -> str:
    """Describe a cycle."""
    shown = (
        cycle if len(cycle) <= LONGEST_SHOWN else [*cycle[: LONGEST_SHOWN - 1], "...", cycle[-1]]
    )
    return f"the references form a cycle: {' -> '.join(reference[:80] for reference in shown)}"


def _references(schema: Any) -> Iterator[str]:
    """Return the references of a schema that apply to the same value."""
    left = [schema]
    while left:
        node = left.pop()
        if not isinstance(node, dict):
            continue
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        if isinstance(node.get("allOf"), list):
            left += node["allOf"]
