"""Values that cross to a confined process: JSON in ASCII, and errors that say what JSON lacks."""

from __future__ import annotations

import json
from typing import Any

from trinity.errors import InputError

LONGEST_REQUEST = 1 << 28  # characters of JSON
_DEEPEST = 100


def to_json(value: Any) -> bytes:
    """``value`` as JSON in ASCII; raises InputError for what JSON cannot hold, saying where."""
    _check(value, "", 0)
    try:
        text = json.dumps(value)
    except ValueError as error:  # an integer of too many digits
        raise InputError(f"a value cannot be written as JSON: {error}") from error
    if len(text) > LONGEST_REQUEST:
        raise InputError(
            f"the values have {len(text)} characters as JSON; at most {LONGEST_REQUEST} are taken"
        )
    return text.encode()


def _check(value: object, where: str, depth: int) -> None:
    if value is None or isinstance(value, str | int | float):
        return
    if depth > _DEEPEST:
        raise InputError(f"{where[:80]}... is nested more than {_DEEPEST} deep")
    if isinstance(value, list | tuple):
        for i, part in enumerate(value):
            _check(part, f"{where}[{i}]", depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise InputError(
                    f"{where[:80] or 'the value'} has the key {str(key)[:40]!r} of type"
                    f" {type(key).__name__}; expected text, as JSON has it"
                )
            _check(part, f"{where}.{key[:40]}".lstrip("."), depth + 1)
    else:
        raise InputError(
            f"{where[:80] or 'the value'} is of type {type(value).__name__}; expected what JSON"
            " can hold: text, numbers, booleans, None, lists and dicts"
        )
