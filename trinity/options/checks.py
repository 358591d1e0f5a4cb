"""Checks of values: numbers in a range, choices, sizes. Each raises InputError."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence

from trinity.errors import InputError

_BYTES = {
    "": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30,
    "T": 2**40,
}  # fmt: skip
MOST_BYTES = 10**16


def numbers(low: float = -math.inf, high: float = math.inf, above: float | None = None) -> str:
    """Describe a range of numbers; ``above`` is an exclusive lower bound."""
    if above is not None:
        return f"a finite number above {above:g}"
    if high == math.inf:
        return "a finite number" if low == -math.inf else f"a finite number of at least {low:g}"
    return f"a number from {low:g} to {high:g}"


def integers(low: int | None, high: int | None = None) -> str:
    """Describe a range of integers."""
    if low is None:
        return "an integer" if high is None else f"an integer of at most {high}"
    return f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"


def check_number(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
) -> float:
    """Return ``value`` as a float. Raises InputError unless it is finite and in the range."""
    expected = numbers(low, high, above)
    try:
        if isinstance(value, bool | str):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(_refusal(name, value, expected)) from None
    if not (math.isfinite(number) and low <= number <= high) or (
        above is not None and number <= above
    ):
        raise InputError(f"{name} is {number:g}; it must be {expected}")
    return number


def check_integer(name: str, value: object, low: int | None, high: int | None = None) -> int:
    """Return ``value`` as an int. Raises InputError unless it is an integer in [low, high]."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(_refusal(name, value, integers(low, high))) from None
    if (low is not None and number < low) or (high is not None and number > high):
        raise InputError(f"{name} is {number}; it must be {integers(low, high)}")
    return number


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` as a bool. Raises InputError unless it equals True or False."""
    try:
        if value in (True, False):
            return bool(value)
    except ValueError:  # comparing an array gives an array
        pass
    raise InputError(_refusal(name, value, "True or False"))


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return the choice that equals ``value``, ignoring case. Raises InputError."""
    for choice in choices:
        if isinstance(value, str) and value.lower() == choice.lower():
            return choice
    raise InputError(f"{name} is {value!r:.40}; it must be {' or '.join(choices)}")


def check_text(name: str, value: object) -> str:
    """Return ``value``. Raises InputError unless it is text."""
    if not isinstance(value, str):
        raise InputError(_refusal(name, value, "text"))
    return value


def parse_bytes(name: str, text: str, least: float = 1) -> int:
    """Parse a size: "500MB", "16GB" (10^9), "16GiB" or "16G" (2^30). Raises InputError."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?I?B?)\s*", text.upper())
    value = float(match[1]) * _BYTES.get(match[2], 0) if match else 0.0
    if not least <= value <= MOST_BYTES:
        raise InputError(f"{name} is {text!r:.40}; expected a size such as 16GB, 16GiB or 500MB")
    return round(value)


def _refusal(name: str, value: object, expected: str) -> str:
    return f"{name} is {value!r} ({type(value).__name__}); it must be {expected}"
