"""The functions that templates can call: Go's own, and Ollama's.

Each takes evaluated arguments; `and` and `or` are in the evaluator, because they stop early.
Sources: Go's text/template/funcs.go; Ollama's template/template.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.go_template.budget import Budget
from trinity.tokenizers.go_template.format import formatted
from trinity.tokenizers.go_template.printing import as_json, printed
from trinity.tokenizers.go_template.values import (
    NIL,
    Absent,
    Map,
    Slice,
    Struct,
    Value,
    byte_length,
    truth,
    type_name,
)


@dataclass(frozen=True, slots=True)
class TemplateFunction:
    """A function, its number of arguments (``most`` None: any number), and whether it is Go's."""

    call: Callable[[Sequence[Value], Budget], Value]
    least: int
    most: int | None
    is_go: bool = True


def _failed(what: str) -> TokenizerError:
    return TokenizerError(f"the Go template failed: {what}")


def _length(arguments: Sequence[Value], budget: Budget) -> Value:
    (value,) = arguments
    if isinstance(value, str):
        budget.step(len(value))
        return byte_length(value)
    if isinstance(value, Slice):
        return len(value)
    if isinstance(value, Map):
        return len(value.values)
    raise _failed(f"len of {type_name(value)}")


def _index(arguments: Sequence[Value], budget: Budget) -> Value:
    value, *places = arguments
    if isinstance(value, Absent):
        raise _failed("index of nil")
    for place in places:
        if isinstance(value, Slice):
            at = _place(place, len(value) - 1)
            value = value.items[value.start + at]
        elif isinstance(value, Map):
            if not isinstance(place, str):
                raise _failed(f"a map is indexed with {type_name(place)}")
            value = value.values.get(place, NIL)
        elif isinstance(value, str):
            raise UnsupportedError(
                "the Go template takes single bytes of a string, which is not supported"
            )
        else:
            raise _failed(f"{type_name(value)} is indexed")
    return value


def _slice(arguments: Sequence[Value], budget: Budget) -> Value:
    value, *places = arguments
    if len(places) > 2:
        raise UnsupportedError("the Go template slices with three indexes, which is not supported")
    if isinstance(value, str):
        budget.step(len(value))
        raw = value.encode()
        start, stop = _bounds(places, len(raw), len(raw))
        try:
            return raw[start:stop].decode()
        except UnicodeDecodeError:
            raise UnsupportedError(
                "the Go template cuts a character into bytes, which is not supported"
            ) from None
    if not isinstance(value, Slice):
        raise _failed(f"slice of {type_name(value)}")
    # Go lets a slice grow up to the end of the underlying array.
    start, stop = _bounds(places, len(value), len(value.items) - value.start)
    return replace(value, start=value.start + start, stop=value.start + stop)


def _bounds(places: Sequence[Value], length: int, most: int) -> tuple[int, int]:
    bounds = [_place(place, most) for place in places]
    start, stop = (*bounds, *(0, length)[len(bounds) :])[:2]
    if start > stop:
        raise _failed(f"a slice from {start} to {stop}")
    return start, stop


def _place(value: Value, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _failed(f"an index is {type_name(value)}")
    if not 0 <= value <= most:
        raise _failed(f"the index {value} is out of range")
    return value


def _not(arguments: Sequence[Value], budget: Budget) -> Value:
    return not truth(arguments[0])


def _print(arguments: Sequence[Value], budget: Budget) -> Value:
    parts, after_text = [], True
    for value in arguments:
        is_text = isinstance(value, str)
        parts.append(("" if is_text or after_text else " ") + printed(value))
        budget.make(len(parts[-1]))
        after_text = is_text
    return "".join(parts)


def _printf(arguments: Sequence[Value], budget: Budget) -> Value:
    return formatted(_text("printf", arguments[0]), arguments[1:], budget)


def _json(arguments: Sequence[Value], budget: Budget) -> Value:
    text = as_json(arguments[0])
    budget.make(len(text))
    return text


def _current_date(arguments: Sequence[Value], budget: Budget) -> Value:
    for argument in arguments:
        _text("currentDate", argument)
    return datetime.now().strftime("%Y-%m-%d")


def _text(function: str, value: Value) -> str:
    if not isinstance(value, str):
        raise _failed(f"{function} wants a string, not {type_name(value)}")
    return value


def _equal(arguments: Sequence[Value], budget: Budget) -> Value:
    first, *others = arguments
    if not others:
        raise _failed("eq has one argument; it needs two or more")
    return any(_same(first, second, budget) for second in others)


def _same(first: Value, second: Value, budget: Budget) -> bool:
    if isinstance(first, Absent) or isinstance(second, Absent):
        return _is_nil(first) and _is_nil(second)
    if type(first) is type(second) and (_is_nil(first) or _is_nil(second)):
        return _is_nil(first) and _is_nil(second)
    if isinstance(first, Struct) and first.is_pointer and isinstance(second, Struct):
        return first is second
    _comparable(first, second)
    budget.step(len(first) if isinstance(first, str) else 0)
    return first == second


def _is_nil(value: Value) -> bool:
    return isinstance(value, Absent) or (isinstance(value, Slice | Map) and value.is_nil)


def _comparable(first: Value, second: Value) -> None:
    if type(first) is not type(second) or not isinstance(first, str | bool | int | float):
        raise _failed(f"{type_name(first)} is compared with {type_name(second)}")


def _less(arguments: Sequence[Value], budget: Budget) -> bool:
    first, second = arguments
    _comparable(first, second)
    if isinstance(first, str) and isinstance(second, str):
        budget.step(len(first))
        return first.encode() < second.encode()
    if isinstance(first, bool) or isinstance(second, bool):
        raise _failed("bools have no order")
    assert isinstance(first, int | float)
    assert isinstance(second, int | float)
    return first < second


def _less_or_equal(arguments: Sequence[Value], budget: Budget) -> bool:
    return _less(arguments, budget) or _same(arguments[0], arguments[1], budget)


FUNCTIONS = {
    "eq": TemplateFunction(_equal, 1, None),
    "ne": TemplateFunction(lambda a, b: not _same(a[0], a[1], b), 2, 2),
    "lt": TemplateFunction(_less, 2, 2),
    "le": TemplateFunction(_less_or_equal, 2, 2),
    "gt": TemplateFunction(lambda a, b: not _less_or_equal(a, b), 2, 2),
    "ge": TemplateFunction(lambda a, b: not _less(a, b), 2, 2),
    "not": TemplateFunction(_not, 1, 1),
    "len": TemplateFunction(_length, 1, 1),
    "index": TemplateFunction(_index, 1, None),
    "slice": TemplateFunction(_slice, 1, None),
    "print": TemplateFunction(_print, 0, None),
    "printf": TemplateFunction(_printf, 1, None),
    "json": TemplateFunction(_json, 1, 1, is_go=False),
    "currentDate": TemplateFunction(_current_date, 0, None, is_go=False),
}
NAMES = frozenset((*FUNCTIONS, "and", "or"))
