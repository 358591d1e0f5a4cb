"""The vocabulary of a GGUF file, for reader and writer: magic, value types, limits.

Layout: magic, version, tensor count, key count, key-value pairs, tensor infos, padding, data.
Source: ggml/include/gguf.h of llama.cpp; versions 2 and 3 have the same byte layout.
"""

from __future__ import annotations

from typing import NamedTuple

MAGIC = b"GGUF"
READABLE_VERSIONS = (2, 3)
WRITTEN_VERSION = 3
HEADER_BYTES = 24

ROTATION_KEYS = "prism."  # the beginning of keys that describe rotated weights
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 21  # the largest page size in common use; the format itself has no limit
MAX_KEY_BYTES = 65535
MAX_NAME_BYTES = 63  # GGML_MAX_NAME is 64 with its terminator
MAX_DIMS = 4
MAX_ELEMENTS = (1 << 63) - 1
MAX_ARRAY_DEPTH = 4
# Limits for a model of several files: each key and tensor costs a multiple of its bytes.
MAX_KEYS = 1 << 14
MAX_TENSORS = 1 << 16
MAX_PARTS = 1 << 10
# Limit for one file: each string and each array within an array is an object.
MAX_STRINGS = 1 << 21
MAX_INNER_ARRAYS = 1 << 14
MAX_METADATA_BYTES = 128 << 20
# Limits for all keys together, and for a text that is read: one wide character makes Python store
# four bytes for each, and more when they are printed.
MAX_KEYS_BYTES, MAX_TEXT_BYTES = 1 << 20, 1 << 24

# The smallest possible records; a declared count is checked against them before reading.
MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1
MIN_TENSOR_INFO_BYTES = 8 + 1 + 4 + 0 + 4 + 8


class ValueType(NamedTuple):
    """One of the 13 value types; ``format`` is the struct and NumPy code of one number.

    ``min_bytes`` is the smallest size of one element in an array.
    """

    id: int
    name: str
    format: str
    min_bytes: int


STRING_ID, ARRAY_ID, BOOL_ID, UINT32_ID = 8, 9, 7, 4

VALUE_TYPES: dict[int, ValueType] = {
    row[0]: ValueType(*row)
    for row in (
        (0, "uint8", "<u1", 1),
        (1, "int8", "<i1", 1),
        (2, "uint16", "<u2", 2),
        (3, "int16", "<i2", 2),
        (UINT32_ID, "uint32", "<u4", 4),
        (5, "int32", "<i4", 4),
        (6, "float32", "<f4", 4),
        (BOOL_ID, "bool", "<u1", 1),
        (STRING_ID, "string", "", 8),
        (ARRAY_ID, "array", "", 12),
        (10, "uint64", "<u8", 8),
        (11, "int64", "<i8", 8),
        (12, "float64", "<f8", 8),
    )
}
VALUE_TYPES_BY_NAME: dict[str, ValueType] = {t.name: t for t in VALUE_TYPES.values()}
VALUE_TYPE_NAMES = ", ".join(VALUE_TYPES_BY_NAME)


def padded(size: int, alignment: int) -> int:
    """Round ``size`` up to a multiple of ``alignment``."""
    return -(-size // alignment) * alignment


def is_alignment(value: int) -> bool:
    """Whether this is a power of two up to MAX_ALIGNMENT."""
    return 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0
