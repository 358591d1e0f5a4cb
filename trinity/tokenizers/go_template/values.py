"""The values of Go templates, as far as Ollama uses them.

A string, a bool, an int and a float are Python's own. Go's strings are bytes: lengths and indexes
count bytes of UTF-8. ``NOTHING`` is a missing value and prints as ``<no value>``; ``NIL`` is an
interface without a value, which has no fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from trinity.errors import InputError, TokenizerError


class Absent(Enum):
    """The two kinds of missing values."""

    NOTHING = "<no value>"
    NIL = "<nil>"


NOTHING, NIL = Absent.NOTHING, Absent.NIL


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A slice of ``items``, from ``start`` up to ``stop``; a nil slice is null in JSON.

    ``as_json``: its type prints itself as JSON.
    """

    items: tuple[Value, ...]
    start: int = 0
    stop: int = 0
    is_nil: bool = False
    as_json: bool = False

    @classmethod
    def of(cls, items: Sequence[Value] | None, *, as_json: bool = False) -> Slice:
        """Return a slice of all ``items``, or a nil slice for None."""
        return cls(tuple(items or ()), 0, len(items or ()), items is None, as_json)

    def __len__(self) -> int:
        return self.stop - self.start

    def values(self) -> tuple[Value, ...]:
        """The elements."""
        return self.items[self.start : self.stop]


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A map from strings; ``as_json``: its type prints itself as JSON. A nil map is null there."""

    values: Mapping[str, Value]
    as_json: bool = False
    is_nil: bool = False

    def sorted(self) -> list[tuple[str, Value]]:
        """Return its pairs in Go's order: by the bytes of the keys."""
        return sorted(self.values.items(), key=lambda pair: pair[0].encode())


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Values by field, in order.

    ``names`` are the fields' names in JSON; a "?" first means that an empty value is omitted.
    ``is_pointer``: the value is a pointer to the struct.
    """

    fields: Mapping[str, Value]
    names: tuple[str, ...]
    is_pointer: bool = False
    as_json: bool = False


Value: TypeAlias = str | bool | int | float | Slice | Map | Struct | Absent


def truth(value: Value) -> bool:
    """Whether ``if`` takes the value for true: all but zeros and empty values."""
    if isinstance(value, Absent):
        return False
    if isinstance(value, str | Slice):
        return len(value) > 0
    if isinstance(value, Map):
        return len(value.values) > 0
    return True if isinstance(value, Struct) else bool(value)


def byte_length(text: str) -> int:
    """Return the number of bytes of a string."""
    return len(text) if text.isascii() else len(text.encode())


def type_name(value: Value) -> str:
    """Return the kind of a value, for messages."""
    if isinstance(value, Absent):
        return "nil"
    names = {str: "string", bool: "bool", int: "int", float: "float64"}
    return names.get(type(value), type(value).__name__.lower())


def from_json(value: object, depth: int = 0) -> Value:
    """Convert a JSON value to Go's ``any``: every number is a float64.

    Raises InputError for what JSON does not have.
    """
    if depth > 60:
        raise InputError("a message's values are nested more than 60 deep")
    if value is None:
        return NIL
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"a message contains {value!r:.40}, too large a number") from None
    if isinstance(value, Mapping):
        return Map({str(key): from_json(inner, depth + 1) for key, inner in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return Slice.of([from_json(inner, depth + 1) for inner in value])
    raise InputError(f"a message contains a {type(value).__name__}, which JSON does not have")


def field_of(value: Value, name: str, missing: Absent) -> Value:
    """Return ``value.name``; ``missing`` is the value of a key that a map lacks.

    Raises TokenizerError if there is no such field.
    """
    if value is NOTHING:
        return NOTHING
    if value is NIL:
        raise TokenizerError(f"the Go template failed: .{name[:40]} of nil")
    if isinstance(value, Map):
        return value.values.get(name, missing)
    if isinstance(value, Struct) and name in value.fields:
        return value.fields[name]
    raise TokenizerError(f"the Go template failed: a {type_name(value)} has no .{name[:40]}")
