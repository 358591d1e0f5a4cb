"""Encode Python values as GGUF values; the type is inferred if none is given."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trinity.errors import InputError
from trinity.formats.gguf_layout import (
    ARRAY_ID,
    MAX_ARRAY_DEPTH,
    VALUE_TYPE_NAMES,
    VALUE_TYPES_BY_NAME,
    ValueType,
)

# Code of a NumPy dtype (without byte order): the value type of the same width.
_NUMPY_TYPES = {
    **{t.format[1:]: t for t in VALUE_TYPES_BY_NAME.values() if t.format},
    "u1": VALUE_TYPES_BY_NAME["uint8"],
    "b1": VALUE_TYPES_BY_NAME["bool"],
}
_SCALAR_INTS = ("uint32", "int32", "uint64", "int64")
_ARRAY_INTS = ("int32", "uint32", "int64", "uint64")  # token_type and similar arrays are int32


def encode_string(text: str, what: str) -> bytes:
    """Encode a string as its length and UTF-8 bytes.

    Raises InputError for other objects and for lone surrogates.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r:.60}; expected text")
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not valid Unicode text ({error.reason})") from error
    return len(raw).to_bytes(8, "little") + raw


def encode_value(key: str, value: object, type: str | None) -> bytes:
    """Return a value's type id and bytes. Raises InputError if ``type`` cannot hold the value."""
    is_array = isinstance(value, list | tuple | np.ndarray)
    if type is not None and type.startswith("array[") and type.endswith("]"):
        if not is_array:
            raise InputError(f"{key}: {type} needs a list or an array, not {value!r:.60}")
        type = type[len("array[") : -1]
    given = None if type is None else _named(key, type)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value, is_array = value[()], False
    if is_array:
        return _u32(ARRAY_ID) + _encode_array(key, value, given, depth=1)
    scalar_type = given or _infer([value], key, _SCALAR_INTS)
    return _u32(scalar_type.id) + _encode_elements(key, [value], scalar_type, depth=0)


def _named(key: str, name: str) -> ValueType:
    if name not in VALUE_TYPES_BY_NAME:
        raise InputError(f"{key}: there is no value type {name!r}; known: {VALUE_TYPE_NAMES}")
    return VALUE_TYPES_BY_NAME[name]


def _encode_array(key: str, values: object, given: ValueType | None, depth: int) -> bytes:
    if depth > MAX_ARRAY_DEPTH:
        raise InputError(f"{key}: arrays may be nested at most {MAX_ARRAY_DEPTH} deep")
    if isinstance(values, np.ndarray):
        native = _NUMPY_TYPES.get(values.dtype.str[1:])
        if values.ndim == 1 and native is not None and given in (None, native):
            data = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
            return _u32(native.id) + len(values).to_bytes(8, "little") + data
        if given is None and native is not None and values.ndim > 1:
            values = list(values)  # rows keep their own type
        else:
            values = values.tolist()
    assert isinstance(values, list | tuple)
    if given is None and not values:
        raise InputError(f"{key}: the type of an empty list is unknown; give type=")
    element = given or _infer(values, key, _ARRAY_INTS)
    header = _u32(element.id) + len(values).to_bytes(8, "little")
    return header + _encode_elements(key, values, element, depth)


def _infer(values: Sequence[object], key: str, int_types: Sequence[str]) -> ValueType:
    """Return the type that can hold all ``values``."""
    first = values[0]
    if isinstance(first, np.generic) and all(isinstance(v, first.__class__) for v in values):
        native = _NUMPY_TYPES.get(first.dtype.str[1:])
        if native is not None:
            return native
    if all(isinstance(v, bool | np.bool_) for v in values):
        return VALUE_TYPES_BY_NAME["bool"]
    if all(isinstance(v, str) for v in values):
        return VALUE_TYPES_BY_NAME["string"]
    if all(isinstance(v, list | tuple | np.ndarray) for v in values):
        return VALUE_TYPES_BY_NAME["array"]
    if all(_is_int(v) for v in values):
        for name in int_types:
            low, high = _int_range(VALUE_TYPES_BY_NAME[name])
            if all(low <= int(v) <= high for v in values):  # type: ignore[call-overload]
                return VALUE_TYPES_BY_NAME[name]
    elif all(_is_int(v) or isinstance(v, float | np.floating) for v in values):
        return VALUE_TYPES_BY_NAME["float32"]
    raise InputError(
        f"{key}: no value type of GGUF can hold {first!r:.60}; known: {VALUE_TYPE_NAMES}"
    )


def _encode_elements(key: str, values: Sequence[object], element: ValueType, depth: int) -> bytes:
    if element.name == "string":
        return b"".join(encode_string(v, f"the value of {key}") for v in values)  # type: ignore[arg-type]
    if element.id == ARRAY_ID:
        for value in values:
            if not isinstance(value, list | tuple | np.ndarray):
                raise InputError(f"{key}: {value!r:.60} is not a list")
        return b"".join(_encode_array(key, value, None, depth + 1) for value in values)
    for value in values:
        _check_number(key, value, element)
    return np.array(values, element.format).tobytes()


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _int_range(element: ValueType) -> tuple[int, int]:
    info = np.iinfo(element.format)
    return int(info.min), int(info.max)


def _check_number(key: str, value: object, element: ValueType) -> None:
    if element.name == "bool":
        fits = isinstance(value, bool | np.bool_)
    elif element.format[1] == "f":
        fits = (_is_int(value) or isinstance(value, float | np.floating)) and _fits_float(
            value, element
        )
    else:
        low, high = _int_range(element)
        fits = _is_int(value) and low <= int(value) <= high  # type: ignore[call-overload]
    if not fits:
        raise InputError(f"{key}: {element.name} cannot hold {value!r:.60}")


def _fits_float(value: object, element: ValueType) -> bool:
    """Whether the type can hold a value; false if a finite value would become infinite."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return False
    return not math.isfinite(number) or abs(number) <= float(np.finfo(element.format).max)


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")
