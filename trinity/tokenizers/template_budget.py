"""How much time and memory a chat template may use.

Jinja2's sandbox keeps a template from reaching Python, not from running for ever or filling the
memory. Here every loop step and call looks at the clock, and every value that a template makes is
weighed, before it is made where one operation can multiply sizes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from jinja2.exceptions import TemplateRuntimeError
from jinja2.utils import Namespace

SECONDS = 3.0  # of processor time; real templates take milliseconds
_BASE_CHARACTERS = 1 << 22
_MADE_PER_LARGEST = 16  # all values together, in multiples of the largest allowed
_ELEMENT_WEIGHT = 4  # characters that an element of a list counts for
_DEEPEST = 64
_INTEGER_BITS = 4096

# A width or precision of four digits or more, or one that is computed.
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{4,}|\*)")
_WIDE_BRACES = re.compile(r"\{[^{}]*(?:\{|\d{4,})")
_WIDE_TIME = re.compile(r"%[^a-zA-Z%]*\d{3,}")


class TemplateLimitError(TemplateRuntimeError):
    """A template went beyond its time or size."""


@dataclass(slots=True)
class Budget:
    """What is left to one rendering. Sizes are in characters."""

    deadline: float
    largest: int
    left: int

    @classmethod
    def of(cls, variables: object) -> Budget:
        """A budget that grows with the size of the template's input."""
        largest = _BASE_CHARACTERS
        largest += 4 * _weight(variables, 1 << 62, 0)
        return cls(time.thread_time() + SECONDS, largest, _MADE_PER_LARGEST * largest)

    def step(self) -> None:
        """Count one step of a loop or call."""
        if time.thread_time() > self.deadline:
            raise TemplateLimitError(f"it ran for more than {SECONDS:g} seconds")

    def check_size(self, size: int) -> None:
        """Refuse a value of ``size`` characters before it is made."""
        if size > self.largest:
            raise TemplateLimitError(
                f"it makes a value of {size} characters; {self.largest} are allowed"
            )

    def charge(self, value: object) -> None:
        """Count a value that was made."""
        self.step()
        size = _weight(value, self.largest, 0)
        self.check_size(size)
        self.left -= size
        if self.left < 0:
            raise TemplateLimitError("it makes too many large values")


CURRENT: ContextVar[Budget] = ContextVar("trinity_chat_template_budget")


def bounded_steps(iterable: Iterable[object]) -> Iterator[object]:
    """The items of ``iterable``, each counted as a step."""
    budget = CURRENT.get()
    for item in iterable:
        budget.step()
        yield item


def check_operation(operator: str, left: object, right: object) -> None:
    """Refuse arithmetic whose result is too large."""
    budget = CURRENT.get()
    bits = 0
    if isinstance(left, int) and isinstance(right, int):
        bits = max(left.bit_length(), right.bit_length())
        if operator == "**":
            bits = max(bits, left.bit_length() * max(right, 0))
        elif operator == "*":
            bits = left.bit_length() + right.bit_length()
    elif operator == "*":
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, str | bytes | list | tuple) and isinstance(count, int):
                weight = _weight(sequence, budget.largest, 0)
                budget.check_size(weight * max(count, 0))
    elif operator == "%" and isinstance(left, str):
        check_percent_format(left)
    if bits > _INTEGER_BITS:
        raise TemplateLimitError(f"it computes an integer of about {bits} bits")


def check_replacement(text: str, old: object, new: object) -> None:
    """Refuse ``text.replace(old, new)`` whose result is too large."""
    CURRENT.get().check_size(len(text) + text.count(str(old)) * len(str(new)))


def check_join(separator: str, items: list[object]) -> None:
    """Refuse ``separator.join(items)`` whose result is too large."""
    budget = CURRENT.get()
    size = len(separator) * len(items) + _weight(items, budget.largest, 0)
    budget.check_size(size)


def check_indent(text: str, width: object) -> None:
    """Refuse to indent each line of ``text`` too far."""
    each = len(width) if isinstance(width, str) else width
    if not isinstance(each, int):
        raise TemplateLimitError(f"it indents by {width!r}")
    CURRENT.get().check_size(len(text) + (text.count("\n") + 1) * max(each, 0))


def check_percent_format(text: str) -> None:
    """Refuse a printf-style format that pads to a thousand characters or more."""
    _refuse(_WIDE_PERCENT.search(text))


def check_braces_format(text: str) -> None:
    """Refuse a ``str.format`` format that pads to a thousand characters or more."""
    _refuse(_WIDE_BRACES.search(text.replace("{{", "").replace("}}", "")))


def check_time_format(text: str) -> None:
    """Refuse a ``strftime`` format that pads to a hundred characters or more."""
    _refuse(_WIDE_TIME.search(text))


def _refuse(match: re.Match[str] | None) -> None:
    if match:
        raise TemplateLimitError(f"it formats with a large or computed width: {match[0][:40]!r}")


def _weight(value: object, limit: int, depth: int) -> int:
    """Characters in ``value`` and all it holds, counted up to a little more than ``limit``."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        raise TemplateLimitError(f"it makes an integer of {value.bit_length()} bits")
    parts: Iterable[object]
    if isinstance(value, Mapping):
        parts = (part for pair in value.items() for part in pair)
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif isinstance(value, Namespace):
        parts = object.__getattribute__(value, "_Namespace__attrs").values()
    else:
        return 0
    if depth == _DEEPEST:
        raise TemplateLimitError(f"it nests values more than {_DEEPEST} deep")
    total = 0
    for part in parts:
        total += _ELEMENT_WEIGHT + _weight(part, limit, depth + 1)
        if total > limit:
            break
    return total
