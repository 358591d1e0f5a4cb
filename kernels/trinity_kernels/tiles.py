"""AMX: functions of the eight tile registers, which have 16 rows of 64 bytes.

An instruction names its tiles, so each product is a function of its own. Tiles are assigned as
follows:

    tiles 0 1 2 3   sums: (weights 0, tokens 0), (0, 1), (1, 0), (1, 1); narrow: weights 0 to 3
    tiles 4 5       weights: 16 rows of 64 bytes
    tiles 6 7       activations: each row has 4 bytes of k of each of 16 tokens

For blocks of 32 bytes a weight tile has 16 rows of 32 bytes, and a tile of activations 8 rows; for
groups of 16 bytes, 16 rows of 16 bytes and 4 rows.

An operand may be split into two tiles in sequence: its bfloat16 part, and the rest. Products of
split operands have nearly the precision of float32; the product of the two rests is omitted.

Source: Intel's architecture manual, chapter on AMX; the LLVM intrinsics llvm.x86.tile*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions

TILE_BYTES = 1024


def _begin(w_bytes: int, x_rows: int) -> Callable[..., Any]:
    @instructions("void", "intp")
    def begin(builder: Any, scratch: Any) -> Any:
        config = bytearray(64)
        config[0] = 1
        for tile in range(8):
            config[16 + 2 * tile] = w_bytes if tile in (4, 5) else 64
            config[48 + tile] = x_rows if tile in (6, 7) else 16
        kind = ir.VectorType(simd.I8, 64)
        builder.store(
            ir.Constant(kind, list(config)), simd.pointer(builder, scratch, kind), align=1
        )
        simd.call_named(
            builder, "llvm.x86.ldtilecfg", ir.VoidType(), [simd.pointer(builder, scratch, simd.I8)]
        )

    return begin


# Each function configures all tiles, and overwrites 64 bytes at the address.
tiles_begin = _begin(64, 16)  # 16 rows of 64 bytes
blocks_begin = _begin(32, 8)  # blocks of 32 bytes: weights half as wide, activations half as high
groups_begin = _begin(16, 4)  # groups of 16 bytes: a quarter of either


@instructions("void")
def tiles_end(builder: Any) -> Any:
    """Release the tiles, because they slow down context switches."""
    simd.call_named(builder, "llvm.x86.tilerelease", ir.VoidType(), [])


@instructions("void")
def tiles_zero(builder: Any) -> Any:
    """Set sums 0 to 3 to zero."""
    for tile in range(4):
        simd.call_named(builder, "llvm.x86.tilezero", ir.VoidType(), [simd.I8(tile)])


def _emit(builder: Any, name: str, steps: list[tuple[int, ...]], addresses: Sequence[Any]) -> None:
    """Emit steps: two numbers are a load (tile, address), three a product (sum, w, x)."""
    for step in steps:
        if len(step) == 2:
            at = addresses[step[1]]
            simd.call_named(
                builder, "llvm.x86.tileloadd64", ir.VoidType(),
                [simd.I8(step[0]), simd.pointer(builder, at, simd.I8), simd.I64(64)],
            )  # fmt: skip
        else:
            simd.call_named(builder, name, ir.VoidType(), [simd.I8(tile) for tile in step])


def _wide(name: str, w_parts: int = 1, x_parts: int = 1) -> Callable[..., Any]:
    """Two weight tiles times two activation tiles; addresses: w0 w1 x0 x1, then their rests."""
    steps: list[tuple[int, ...]] = []
    # Three other products are between two uses of a sum.
    for w_part, x_part in ((0, 0), (0, 1), (1, 0)):
        if w_part >= w_parts or x_part >= x_parts:
            continue
        steps.extend(
            [(4, 4 * w_part), (6, 4 * x_part + 2), (7, 4 * x_part + 3), (5, 4 * w_part + 1)]
        )
        steps.extend([(0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)])

    @instructions("void", *["intp"] * 4)
    def product(builder: Any, w0: Any, w1: Any, x0: Any, x1: Any) -> Any:
        """Add the products of two weight tiles and two activation tiles to sums 0 to 3."""
        _emit(
            builder,
            name,
            steps,
            [w0, w1, x0, x1, *(builder.add(a, simd.I64(TILE_BYTES)) for a in (w0, w1, x0, x1))],
        )

    return product


def _narrow(name: str, w_parts: int = 1, x_parts: int = 1) -> Callable[..., Any]:
    """Weight tiles times one activation tile; addresses: w0 w1 w2 w3 x, then their rests.

    There are four weight tiles with a sum each. Split weights have two, each with one sum for the
    first parts and one for the rests, which the caller adds.
    """
    steps: list[tuple[int, ...]] = [(6, 4)]
    if x_parts == 2:
        steps.append((7, 9))
    if w_parts == 2:
        steps.extend([(4, 0), (0, 4, 6), (1, 4, 7), (5, 1), (2, 5, 6), (3, 5, 7)])
        steps.extend([(4, 5), (1, 4, 6), (5, 6), (3, 5, 6)])
    else:
        for x_part in range(x_parts):
            for w in range(4):
                tile = 4 + w % 2
                steps.extend([(tile, w), (w, tile, 6 + x_part)])

    @instructions("void", "intp", "intp", "intp")
    def product(builder: Any, w: Any, stride: Any, x: Any) -> Any:
        """Add the products of weight tiles, ``stride`` bytes apart, and one activation tile."""
        first = [builder.add(w, builder.mul(stride, simd.I64(i))) for i in range(4)]
        first.append(x)
        _emit(
            builder, name, steps, [*first, *(builder.add(a, simd.I64(TILE_BYTES)) for a in first)]
        )

    return product


_I8, _BF16 = "llvm.x86.tdpbssd", "llvm.x86.tdpbf16ps"
# By the parts of weights and of activations.
wide_i8, narrow_i8 = _wide(_I8), _narrow(_I8)
wide_bf16 = {parts: _wide(_BF16, *parts) for parts in ((1, 1), (1, 2), (2, 2))}
narrow_bf16 = {parts: _narrow(_BF16, *parts) for parts in ((1, 1), (1, 2), (2, 2))}


def _block(number: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    @instructions("void", "intp", "intp", "intp")
    def block(builder: Any, w: Any, stride: Any, x: Any) -> Any:
        """Add a weight tile, rows ``stride`` bytes apart, times an activation tile to the sum."""
        weights, tokens = 4 + number % 2, 6 + number % 2
        simd.call_named(builder, "llvm.x86.tilezero", ir.VoidType(), [simd.I8(number)])
        for tile, at, step in ((weights, w, stride), (tokens, x, simd.I64(64))):
            operands = [simd.I8(tile), simd.pointer(builder, at, simd.I8), step]
            simd.call_named(builder, "llvm.x86.tileloadd64", ir.VoidType(), operands)
        simd.call_named(
            builder, _I8, ir.VoidType(), [simd.I8(number), simd.I8(weights), simd.I8(tokens)]
        )

    @instructions("void", "intp")
    def store(builder: Any, to: Any) -> Any:
        """Store the sum, 1024 bytes: [weight row][token]."""
        operands = [simd.I8(number), simd.pointer(builder, to, simd.I8), simd.I64(64)]
        simd.call_named(builder, "llvm.x86.tilestored64", ir.VoidType(), operands)

    return block, store


# By the tile of the sum.
block_0, store_0 = _block(0)
block_1, store_1 = _block(1)
block_2, store_2 = _block(2)
block_3, store_3 = _block(3)


@instructions("void", "intp")
def tiles_store(builder: Any, address: Any) -> Any:
    """Store sums 0 to 3 in sequence, 1024 bytes each: [weight row][token]."""
    for tile in range(4):
        at = builder.add(address, simd.I64(1024 * tile))
        simd.call_named(
            builder, "llvm.x86.tilestored64", ir.VoidType(),
            [simd.I8(tile), simd.pointer(builder, at, simd.I8), simd.I64(64)],
        )  # fmt: skip


@instructions("void", "intp", "intp", "intp")
def transpose_16x16(builder: Any, source: Any, target: Any, stride: Any) -> Any:
    """Transpose 16 rows of 16 words, ``stride`` bytes apart, to rows of 64 bytes."""
    kind = simd.I32X16.ir
    rows = [
        builder.load(
            simd.pointer(builder, builder.add(source, builder.mul(stride, simd.I64(i))), kind),
            align=1,
        )
        for i in range(16)
    ]
    # Butterflies: step s exchanges the blocks of s rows and s columns off the diagonal.
    for step in (8, 4, 2, 1):
        mixed: list[Any] = [None] * 16
        for i in range(16):
            if i & step:
                continue
            low = [c if not c & step else 16 + c - step for c in range(16)]
            high = [c + step if not c & step else 16 + c for c in range(16)]
            mixed[i] = simd.shuffle(builder, rows[i], rows[i + step], low)
            mixed[i + step] = simd.shuffle(builder, rows[i], rows[i + step], high)
        rows = mixed
    for i, row in enumerate(rows):
        builder.store(
            row, simd.pointer(builder, builder.add(target, simd.I64(64 * i)), kind), align=1
        )


@instructions("f32x16", "f32x16")
def bf16_rest(builder: Any, value: Any) -> Any:
    """value - bfloat16(value), exact."""
    kind = _bfloats(16)
    short = simd.call_named(builder, "llvm.x86.avx512bf16.cvtneps2bf16.512", kind, [value])
    wide = builder.zext(builder.bitcast(short, ir.VectorType(simd.I16, 16)), simd.I32X16.ir)
    bits = builder.shl(wide, ir.Constant(simd.I32X16.ir, [16] * 16))
    return builder.fsub(value, builder.bitcast(bits, simd.F32X16.ir))


@instructions("f32x16", "f32x16")
def cut_bf16(builder: Any, value: Any) -> Any:
    """Float32 truncated to bfloat16: the lower 16 bits are set to 0."""
    bits = builder.bitcast(value, simd.I32X16.ir)
    kept = builder.and_(bits, ir.Constant(simd.I32X16.ir, [-65536] * 16))
    return builder.bitcast(kept, simd.F32X16.ir)


def _bfloats(count: int) -> Any:
    """LLVM's vector of bfloat16, a type that llvmlite lacks."""

    class BFloat(ir.Type):  # type: ignore[misc]
        def _to_string(self) -> str:
            return "bfloat"

    return ir.VectorType(BFloat(), count)


def emit_bf16x32(builder: Any, low: Any, high: Any) -> Any:
    """<32 x i16>: the bfloat16 nearest to 16 + 16 float32, half to even."""
    kind = _bfloats(32)
    both = simd.call_named(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", kind, [high, low])
    return builder.bitcast(both, ir.VectorType(simd.I16, 32))


@instructions("void", "intp", "f32x16", "f32x16")
def store_bf16x32(builder: Any, address: Any, low: Any, high: Any) -> Any:
    """Write 32 float32 to ``address`` as bfloat16, rounded half to even."""
    words = emit_bf16x32(builder, low, high)
    builder.store(words, simd.pointer(builder, address, words.type), align=1)
