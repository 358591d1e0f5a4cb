"""Columns of 16 rows of weights: the bytes at one place of each row, side by side in a vector.

Codes that are bytes or nibbles are transposed as they are stored, and nibbles are separated after
that. This exchanges half as many lanes as transposing codes, and needs no scratch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.quants import READERS
from trinity_kernels.quants.superblock import Columns, SuperBlock


def hidden(builder: Any, number: Any) -> Any:
    """The same number, of which the compiler knows nothing.

    Otherwise it would keep an address for each row from one block to the next, on the stack.
    """
    kind = ir.FunctionType(simd.I64, [simd.I64])
    return builder.asm(kind, "", "=r,0", [number], False)


def row_addresses(builder: Any, first: Any, stride: Any) -> list[Any]:
    """The addresses of 16 rows, each the sum of few registers."""
    first, stride = hidden(builder, first), hidden(builder, stride)
    double = builder.shl(stride, simd.I64(1))
    steps = [simd.I64(0), stride, double, builder.add(double, stride)]
    found: list[Any] = []
    for _ in range(4):
        found.extend(builder.add(first, step) for step in steps)
        first = builder.add(first, builder.shl(stride, simd.I64(2)))
    return found


def _store(builder: Any, value: Any, to: Any, offset: int) -> None:
    at = builder.add(to, simd.I64(offset))
    builder.store(value, simd.pointer(builder, at, value.type), align=1)


def emit_columns(builder: Any, rows: Sequence[Any], offset: int = 0) -> list[Any]:
    """Four <16 x i32>: word ``offset`` / 4 and the three after it of the rows at 16 addresses.

    Vector i has the words of rows i, i + 4, i + 8 and i + 12, so only words of the same 128 bits
    are exchanged, which is cheaper than exchanging words of the whole vector.
    """
    kind = ir.VectorType(simd.I32, 4)
    parts = []
    for row in rows:
        at = builder.add(row, simd.I64(offset))
        parts.append(builder.load(simd.pointer(builder, at, kind), align=1))
    v = []
    for i in range(4):
        halves = [
            simd.shuffle(builder, parts[4 * j + i], parts[4 * j + 4 + i], list(range(8)))
            for j in (0, 2)
        ]
        v.append(simd.shuffle(builder, halves[0], halves[1], list(range(16))))
    low, high = [0, 16, 1, 17], [2, 18, 3, 19]
    pairs = [[_in_each(builder, v[i], v[i + 1], order) for order in (low, high)] for i in (0, 2)]
    first, second = [0, 1, 16, 17], [2, 3, 18, 19]
    return [
        _in_each(builder, pairs[0][half], pairs[1][half], order)
        for half in (0, 1)
        for order in (first, second)
    ]


def _in_each(builder: Any, a: Any, b: Any, order: list[int]) -> Any:
    """Shuffle <16 x i32> in the same order in each 128 bits; from 16 on: lanes of ``b``."""
    return simd.shuffle(builder, a, b, [4 * part + lane for part in range(4) for lane in order])


@instructions("void", "intp", "intp", "intp", "intp")
def store_nibbles(builder: Any, codes: Any, stride: Any, low: Any, high: Any) -> Any:
    """Write four lines of 16 rows x 4 codes at ``low`` and at ``high``.

    They are the low and the high nibbles of 16 bytes of each row.
    """
    kind = simd.I32X16.ir
    nibbles = ir.Constant(kind, [0x0F0F0F0F] * 16)
    rows = row_addresses(builder, codes, stride)
    for i, line in enumerate(emit_columns(builder, rows)):
        _store(builder, builder.and_(line, nibbles), low, 64 * i)
        line = builder.lshr(line, ir.Constant(kind, [4] * 16))
        _store(builder, builder.and_(line, nibbles), high, 64 * i)


@instructions("void", "intp", "intp", "intp", "literal")
def store_bytes(builder: Any, codes: Any, stride: Any, to: Any, flip: Any) -> Any:
    """Write 8 lines of 16 rows x 4 codes at ``to``: 32 bytes of each row, XOR ``flip``."""
    kind = simd.I32X16.ir
    rows = row_addresses(builder, codes, stride)
    for part in range(2):
        for i, line in enumerate(emit_columns(builder, rows, 16 * part)):
            line = builder.xor(line, ir.Constant(kind, [flip * 0x01010101] * 16))
            _store(builder, line, to, 256 * part + 64 * i)


def _superblock(builder: Any, qt: Any, block: Any, stride: Any) -> tuple[SuperBlock, Columns]:
    """The reader of a type, and the columns of 16 rows of its blocks."""
    reader = READERS[qt.value]
    assert isinstance(reader, SuperBlock)
    rows = row_addresses(builder, block, stride)
    return reader, lambda offset: emit_columns(builder, rows, offset)


@instructions("void", "tag", "intp", "intp", "intp")
def store_code_columns(builder: Any, qt: Any, block: Any, stride: Any, to: Any) -> Any:
    """Write a line of 16 rows x 4 codes for each four codes of a superblock."""
    reader, columns = _superblock(builder, qt, block, stride)
    assert reader.emit_code_columns is not None
    for i, line in enumerate(reader.emit_code_columns(builder, columns)):
        _store(builder, line, to, 64 * i)


@instructions("void", "tag", "intp", "intp", "intp")
def store_scale_columns(builder: Any, qt: Any, block: Any, stride: Any, to: Any) -> Any:
    """Write a line of 16 rows for each scale of a superblock, and then minus each minimum."""
    reader, columns = _superblock(builder, qt, block, stride)
    assert reader.emit_scale_columns is not None
    for i, line in enumerate(reader.emit_scale_columns(builder, columns)):
        _store(builder, line, to, 64 * i)
