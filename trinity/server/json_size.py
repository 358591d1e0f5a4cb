"""The number of values in a JSON text, counted before it is decoded.

Decoding takes time and memory per value, not per byte, and holds the interpreter's lock: 4 MB of
empty lists take 1 s and 90 MB, the same bytes in one string 8 ms.
"""

from __future__ import annotations

from mmap import mmap

import numpy as np

from trinity.server.errors import ApiError

# Commas, colons and opening brackets outside of strings; a list of n numbers has n of them.
MOST_VALUES = 300_000
# Colons and opening brackets among them. They cost ten times as much as numbers: a decoder makes
# objects of them, which the garbage collector visits.
MOST_MEMBERS = 1 << 16
# A JSON text within both limits is decoded in about a millisecond.
FEW_VALUES, FEW_BYTES = 1000, 128 << 10
_SLICE = 1 << 16  # bytes that are looked at together


def check_values(data: bytes) -> None:
    """Raises: ApiError 413 for a text with more values or members than may be."""
    if len(data) <= MOST_MEMBERS:
        return
    values, members = values_in(data)
    for count, most, what in (
        (values, MOST_VALUES, "values: names, numbers, texts, lists and objects"),
        (members, MOST_MEMBERS, "names, lists and objects"),
    ):
        if count > most:
            raise ApiError(413, f"the JSON has more than {most} {what}", code="too_many_values")


def has_few_values(data: bytes | mmap) -> bool:
    """Whether a JSON text can be decoded in the event loop."""
    return isinstance(data, bytes) and len(data) <= FEW_BYTES and values_in(data)[0] <= FEW_VALUES


def values_in(data: bytes) -> tuple[int, int]:
    """The values of a JSON text, and its members: names, lists and objects."""
    if b"\\" in data:  # an escaped quote does not end a string
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    commas, members, inside = 0, 0, False
    codes = np.frombuffer(data, np.uint8)
    for start in range(0, len(codes), _SLICE):
        part = codes[start : start + _SLICE]
        outside = ~np.logical_xor.accumulate(part == ord('"'))
        if inside:
            outside = ~outside
        # "[" and "{" differ in one bit.
        member = (part == ord(":")) | (part | 0x20 == ord("{"))
        commas += int(np.count_nonzero((part == ord(",")) & outside))
        members += int(np.count_nonzero(member & outside))
        inside = not outside[-1]
    return commas + members, members
