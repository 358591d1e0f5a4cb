"""A GGUF file as keys and tensors before it is written, with marks where bytes can be changed."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fuzzing import values

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
    I64: "q", F64: "d",
}  # fmt: skip
WIDTHS = {kind: struct.calcsize("<" + code) for kind, code in FORMATS.items()}


class Mark(NamedTuple):
    """A number in the structure of a file."""

    at: int
    width: int


@dataclass(slots=True)
class Value:
    """A value: ``type`` and, of arrays, ``element``. ``raw``: the payload as bytes."""

    type: int
    content: object
    element: int = U8

    def payload(self) -> bytes:
        """Return the bytes after the type."""
        if isinstance(self.content, bytes):
            return self.content
        if self.type == STRING:
            return string(self.content)
        if self.type == ARRAY:
            items = self.content
            assert isinstance(items, list)
            head = struct.pack("<IQ", self.element, len(items))
            if self.element == STRING:
                return head + b"".join(map(string, items))
            return head + b"".join(number(self.element, item) for item in items)
        return number(self.type, self.content)


@dataclass(slots=True)
class Tensor:
    """``dims`` in file order; ``data`` has any length."""

    name: str
    dims: list[int]
    type_id: int
    data: bytes


@dataclass(slots=True)
class Draft:
    """A file before it is encoded."""

    keys: list[tuple[str, Value]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    alignment: int = 32

    def find(self, key: str) -> Value | None:
        """Return the first value of a key."""
        return next((value for name, value in self.keys if name == key), None)

    def set(self, key: str, value: Value) -> None:
        """Replace or add a key."""
        for i, (name, _) in enumerate(self.keys):
            if name == key:
                self.keys[i] = key, value
                return
        self.keys.append((key, value))

    def encode(self) -> tuple[bytearray, list[Mark], list[int]]:
        """Return the file, the marks of its numbers, and the start of its records."""
        out = bytearray(b"GGUF")
        out += struct.pack("<IQQ", self.version & 0xFFFFFFFF, len(self.tensors), len(self.keys))
        marks, bounds = [Mark(4, 4), Mark(8, 8), Mark(16, 8)], [24]
        for key, value in self.keys:
            at = len(out)
            raw = string(key)
            out += raw + struct.pack("<I", value.type)
            marks += (Mark(at, 8), Mark(at + len(raw), 4))
            at = len(out)
            out += value.payload()
            if value.type == ARRAY:
                marks += (Mark(at, 4), Mark(at + 4, 8), Mark(at + 12, 8))
            else:
                marks.append(Mark(at, WIDTHS.get(value.type, 8)))
            bounds.append(len(out))
        offset = 0
        for tensor in self.tensors:
            at = len(out)
            raw = string(tensor.name)
            out += raw + struct.pack("<I", len(tensor.dims))
            out += b"".join(struct.pack("<Q", size & (1 << 64) - 1) for size in tensor.dims)
            out += struct.pack("<IQ", tensor.type_id & 0xFFFFFFFF, offset)
            offset += -(-len(tensor.data) // self.alignment) * self.alignment
            marks += (Mark(at, 8), Mark(at + len(raw), 4))
            marks += (Mark(at + len(raw) + 4 + 8 * i, 8) for i in range(len(tensor.dims)))
            marks += (Mark(len(out) - 12, 4), Mark(len(out) - 8, 8))
            bounds.append(len(out))
        out += bytes(-len(out) % self.alignment)
        bounds.append(len(out))
        for tensor in self.tensors:
            out += tensor.data
            out += bytes(-len(tensor.data) % self.alignment)
            bounds.append(len(out))
        return out, marks, bounds


def string(text: object) -> bytes:
    """Encode a length and a text; lone surrogates are encoded as they are."""
    raw = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def number(kind: int, value: object) -> bytes:
    """Encode a number in a type, cut to its width; 0 for other values."""
    if not isinstance(value, int | float):
        value = 0
    code = "<" + FORMATS[kind]
    if kind in (F32, F64):
        try:
            return struct.pack(code, value)
        except (OverflowError, struct.error):
            return struct.pack(code, float("inf"))
    width = WIDTHS[kind]
    whole = int(value) if value == value and abs(value) != float("inf") else 0
    return (whole & (1 << 8 * width) - 1).to_bytes(width, "little")


def any_value(rng: random.Random) -> Value:
    """Draw a value of any type."""
    kind = rng.randrange(13)
    if kind == STRING:
        return Value(STRING, values.text(rng))
    if kind == ARRAY:
        element = rng.choice((U8, I8, U32, I32, F32, BOOL, STRING, U64, F64))
        count = rng.choice((0, 1, 2, 3, 20))
        make = values.text if element == STRING else values.integer
        return Value(ARRAY, [make(rng) for _ in range(count)], element)
    return Value(kind, values.real(rng) if kind in (F32, F64) else values.integer(rng))


def injure(
    rng: random.Random,
    out: bytearray,
    marks: Sequence[Mark],
    bounds: Sequence[int],
    other: bytes = b"",
) -> None:
    """Damage a file in one to three places, mostly its numbers."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.random()
        if kind < 0.5:
            mark = rng.choice(marks)
            end = mark.at + mark.width
            if end > len(out):
                continue
            old = int.from_bytes(out[mark.at : end], "little")
            choice = rng.random()
            if choice < 0.3:
                new = old + rng.choice((-8, -4, -1, 1, 4, 8, 32))
            elif choice < 0.4:
                new = old * rng.choice((2, 3, 256))
            elif choice < 0.5:
                new = old ^ 1 << rng.randrange(8 * mark.width)
            elif choice < 0.6 and mark.width == 4:
                new = rng.randrange(45)
            else:
                new = values.integer(rng)
            out[mark.at : end] = (new & (1 << 8 * mark.width) - 1).to_bytes(mark.width, "little")
        elif kind < 0.65:
            bound = rng.choice(bounds) + rng.choice((0, 0, -1, 1, -8, 8, 4))
            del out[max(0, bound) :]
        elif kind < 0.75 and len(out):
            for _ in range(rng.choice((1, 1, 5))):
                out[rng.randrange(min(len(out), bounds[-1]))] ^= 1 << rng.randrange(8)
        elif kind < 0.85:
            first, last = sorted(rng.choices(bounds, k=2))
            piece = bytes(out[first:last][:10_000])
            to = rng.choice(bounds)
            if rng.random() < 0.5:
                out[to:to] = piece
            else:
                del out[first:last]
        elif kind < 0.93 and other:
            cut = rng.choice(bounds)
            out[cut:] = other[rng.randrange(len(other)) if rng.random() < 0.5 else cut :]
        else:
            at = rng.randrange(len(out) + 1)
            out[at : at + rng.choice((0, 4, 16))] = rng.randbytes(rng.choice((1, 4, 16)))
