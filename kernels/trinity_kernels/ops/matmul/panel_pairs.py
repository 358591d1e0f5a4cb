"""Panels on neon-i8mm: products of 2 rows of weights and 2 tokens, 8 codes each (smmla).

A panel stores 64 codes of 16 rows as 8 lines of 16 rows x 8 codes, so two rows are one operand of
16 adjacent bytes. The codes of two tokens are combined as they are read. A product adds to four
sums: row 0 with both tokens, row 1 with both tokens. Exact sums are then ordered by token, four
rows to a vector, and processed as on other levels.

Source: Arm's architecture manual, SMMLA and USMMLA (vector): result[i][j] += the sum over k of
first[i][k] * second[j][k].
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import tiles
from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.tags import chosen

# Tokens whose sums fit the registers: two pairs.
AT_ONCE = 4
# Blocks of 256 ternary codes of a panel that fit the first-level cache: 32 KiB.
BLOCKS_AT_ONCE = 8


def emit_transpose(builder: Any, source: Any, to: Any) -> None:
    """Write 16 rows of 64 bytes as 8 lines of 16 rows x 8 bytes."""
    kind = ir.VectorType(simd.I64, 8)
    for p in range(8):
        first = _load(builder, source, 128 * p, kind)
        second = _load(builder, source, 128 * p + 64, kind)
        for g in range(8):
            pair = simd.shuffle(builder, first, second, [g, 8 + g])
            _store(builder, pair, to, 128 * g + 16 * p)


@instructions("void", "intp", "intp")
def _transpose_pairs(builder: Any, source: Any, to: Any) -> Any:
    """As emit_transpose."""
    emit_transpose(builder, source, to)


@chosen
def transpose_codes(isa: Any, source: Any, to: Any) -> Any:
    """Write 16 rows of 64 codes, 64 bytes apart, to their 1024 bytes of a panel."""
    if isa.value == "neon-i8mm":
        return lambda isa, source, to: _transpose_pairs(source, to)
    return lambda isa, source, to: tiles.transpose_16x16(source, to, 64)


def _at(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, simd.I64(offset)) if offset else address


def _load(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    place = simd.pointer(builder, _at(builder, address, offset), kind)
    return builder.load(place, align=1)


def _store(builder: Any, value: Any, address: Any, offset: int) -> None:
    builder.store(value, simd.pointer(builder, _at(builder, address, offset), value.type), align=1)


def _both_tokens(builder: Any, first: Any, second: Any, offset: int) -> list[Any]:
    """16 codes of two tokens as two operands, each of 8 codes of one, then 8 of the other."""
    a, b = (_load(builder, address, offset, simd.I64X2.ir) for address in (first, second))
    pairs = [simd.shuffle(builder, a, b, lanes) for lanes in ([0, 2], [1, 3])]
    return [builder.bitcast(pair, simd.I8X16.ir) for pair in pairs]


def _multiply(builder: Any, sums: Any, rows: Any, tokens: Any, unsigned: bool) -> Any:
    """``sums`` + the products of two rows, signed or not, and two tokens: [row][token]."""
    name = f"llvm.aarch64.neon.{'usmmla' if unsigned else 'smmla'}.v4i32.v16i8"
    return simd.call_named(builder, name, simd.I32X4.ir, [sums, rows, tokens])


def _by_token(builder: Any, sums: list[Any]) -> list[list[Any]]:
    """The sums of four rows for each of two tokens, from those of neighbouring pairs of rows."""
    return [
        [simd.shuffle(builder, sums[i], sums[i + 1], lanes) for i in range(0, len(sums), 2)]
        for lanes in ([0, 2, 4, 6], [1, 3, 5, 7])
    ]


def token_rows(builder: Any, x: Any, first: Any, last: Any, stride: Any) -> list[Any]:
    """The addresses of four tokens from ``first`` on; ``last`` replaces tokens after it."""
    rows = []
    for t in range(AT_ONCE):
        number = builder.add(first, simd.I64(t))
        number = builder.select(builder.icmp_signed("<", last, number), last, number)
        rows.append(builder.add(x, builder.mul(number, stride)))
    return rows


def emit_blocks(
    builder: Any, args: list[Any], parts: int, fine: bool, minima: bool, unsigned: bool
) -> None:
    """Emit panel_q8.panel_blocks, with its arguments, for 8 rows and then for the other 8.

    ``parts``: scales of a block; ``fine``: activations have 19 bits; ``minima``: whether there are
    minima; ``unsigned``: codes have 8 bits without a sign.
    """
    panel, scales, blocks, x, last, stride, x_middle, x_scales, x_sums, to = args
    rows = token_rows(builder, x, simd.I64(0), last, stride)
    totals = [[cgutils.alloca_once(builder, simd.F32X4.ir) for _ in range(2)] for _ in rows]
    with cgutils.for_range(builder, simd.I64(2)) as half:
        lines = builder.add(to, builder.mul(half.index, simd.I64(32)))
        for t, total in enumerate(totals):
            for j in range(2):
                builder.store(_load(builder, lines, 64 * t + 16 * j, simd.F32X4.ir), total[j])
        codes_at = builder.add(panel, builder.mul(half.index, simd.I64(64)))
        scales_at = builder.add(scales, builder.mul(half.index, simd.I64(32)))
        with cgutils.for_range(builder, blocks) as loop:
            b = loop.index
            line = builder.add(codes_at, builder.mul(b, simd.I64(512)))
            factors = builder.add(scales_at, builder.mul(b, simd.I64(128 * parts)))
            planes = [[builder.add(row, builder.mul(b, simd.I64(32))) for row in rows]]
            for _ in range(2 if fine else 0):
                planes.append([builder.add(place, x_middle) for place in planes[-1]])
            by_block = [builder.add(row, builder.mul(b, simd.I64(4))) for row in rows]
            by_part = [builder.add(row, builder.mul(b, simd.I64(4 * parts))) for row in rows]
            for i in range(parts):
                starts = [16 * i] if parts == 2 else [0, 16]
                exact = _exact(builder, line, planes, starts, unsigned)
                d = [_load(builder, factors, 64 * i + 16 * j, simd.F32X4.ir) for j in range(2)]
                m = [
                    _load(builder, factors, 64 * (parts + i) + 16 * j, simd.F32X4.ir)
                    for j in range(2)
                ]
                for t, total in enumerate(totals):
                    scale = _everywhere(builder, builder.add(by_block[t], x_scales), 0)
                    least = _everywhere(builder, builder.add(by_part[t], x_sums), 4 * i)
                    for j in range(2):
                        y = builder.load(total[j])
                        if minima:
                            y = _fma(builder, m[j], least, y)
                        products = builder.sitofp(exact[t][j], simd.F32X4.ir)
                        y = _fma(builder, builder.fmul(d[j], scale), products, y)
                        builder.store(y, total[j])
        for t, total in enumerate(totals):
            for j in range(2):
                _store(builder, builder.load(total[j]), lines, 64 * t + 16 * j)


def _add_16(
    builder: Any, sums: list[list[Any]], line: Any, places: list[Any], start: int, unsigned: bool
) -> None:
    """Add the products of 16 codes, from ``start`` on, to sums [pair of tokens][pair of rows]."""
    codes = [
        _both_tokens(builder, places[t], places[t + 1], start) for t in range(0, len(places), 2)
    ]
    for g in range(2):
        for p in range(len(sums[0])):
            weights = _load(builder, line, 16 * start + 128 * g + 16 * p, simd.I8X16.ir)
            for some, operands in zip(sums, codes, strict=True):
                some[p] = _multiply(builder, some[p], weights, operands[g], unsigned)


def _exact(
    builder: Any, line: Any, planes: list[Any], starts: list[int], unsigned: bool
) -> list[list[Any]]:
    """The sums of 16 codes from each of ``starts`` on, of 8 rows, by token.

    ``planes``: the addresses of each token's high, middle and ones codes, or of its only codes.
    """
    sums: list[list[Any]] = [[ir.Constant(simd.I32X4.ir, None)] * 4 for _ in range(AT_ONCE // 2)]
    for number, places in enumerate(planes):
        if number:
            eight = ir.Constant(simd.I32X4.ir, [8] * 4)
            sums = [[builder.shl(one, eight) for one in some] for some in sums]
        for start in starts:
            _add_16(builder, sums, line, places, start, unsigned)
    return [token for some in sums for token in _by_token(builder, some)]


def _everywhere(builder: Any, address: Any, offset: int) -> Any:
    one = _load(builder, address, offset, simd.F32)
    return simd.broadcast(builder, one, simd.Vec("f32", 4))


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return simd.call_named(builder, "llvm.fma.v4f32", simd.F32X4.ir, [a, b, c])


def emit_codes(builder: Any, args: list[Any]) -> None:
    """Emit panel_ternary.panel_codes, with its arguments, for four tokens at a time.

    A part of a panel that fits the first-level cache is multiplied by all tokens before the next.
    """
    panel, blocks, x, last, stride, to = args
    kept = [
        [cgutils.alloca_once(builder, simd.I32X4.ir) for _ in range(8)] for _ in range(AT_ONCE // 2)
    ]
    at_once = simd.I64(BLOCKS_AT_ONCE)
    parts = builder.udiv(builder.add(blocks, simd.I64(BLOCKS_AT_ONCE - 1)), at_once)
    fours = builder.add(builder.udiv(last, simd.I64(AT_ONCE)), simd.I64(1))
    with cgutils.for_range(builder, parts) as part:
        begin = builder.mul(part.index, at_once)
        left = builder.sub(blocks, begin)
        count = builder.select(builder.icmp_signed("<", left, at_once), left, at_once)
        with cgutils.for_range(builder, fours) as four:
            rows = token_rows(builder, x, builder.mul(four.index, simd.I64(AT_ONCE)), last, stride)
            for one in (one for some in kept for one in some):
                builder.store(ir.Constant(simd.I32X4.ir, None), one)
            with cgutils.for_range(builder, builder.mul(count, simd.I64(8))) as loop:
                place = builder.add(builder.mul(begin, simd.I64(8)), loop.index)
                line = builder.add(panel, builder.mul(place, simd.I64(512)))
                places = [builder.add(row, builder.mul(place, simd.I64(32))) for row in rows]
                sums = [[builder.load(one) for one in some] for some in kept]
                for start in (0, 16):
                    _add_16(builder, sums, line, places, start, False)
                for some, those in zip(sums, kept, strict=True):
                    for total, one in zip(some, those, strict=True):
                        builder.store(total, one)
            lines = builder.add(to, builder.mul(four.index, simd.I64(64 * AT_ONCE)))
            for t, some in enumerate(kept):
                found = _by_token(builder, [builder.load(one) for one in some])
                for i, vectors in enumerate(found):
                    for j, total in enumerate(vectors):
                        at = 64 * (2 * t + i) + 16 * j
                        before = _load(builder, lines, at, simd.I32X4.ir)
                        _store(builder, builder.add(before, total), lines, at)
