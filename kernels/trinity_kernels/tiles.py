"""AMX: eight tile registers of 16 rows of 64 bytes, and their two products, as Numba intrinsics.

Tiles are numbered in the instruction, so numbers are literals here: each product is its own
intrinsic over the fixed assignment

    tiles 0 1 2 3   sums: (weights 0, tokens 0), (0, 1), (1, 0), (1, 1); narrow: weights 0 to 3
    tiles 4 5       weights: 16 rows of 64 bytes each
    tiles 6 7       activations: 4 bytes of k of each of 16 tokens to a row

Of blocks of 32 bytes a weight tile has 16 rows of 32 bytes, one of activations 8 rows; of groups
of 16 bytes 16 bytes and 4 rows.

An operand may be split into two tiles, its bfloat16 part and what that leaves, one behind the
other: their product is then as good as float32's (the product of the two rests is left out).

Source: Intel's architecture manual, chapter on AMX; the LLVM intrinsics llvm.x86.tile*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from trinity_kernels._jit import intrinsic
from trinity_kernels.simd import F32X16, I8, I16, I32X16, I64, call_named, pointer, shuffle

_VOID = ir.VoidType()
TILE_BYTES = 1024


def _begin(w_bytes: int, x_rows: int, doc: str) -> Callable[..., Any]:
    def begin(typingctx: Any, scratch: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            config = bytearray(64)
            config[0] = 1
            for tile in range(8):
                config[16 + 2 * tile] = w_bytes if tile in (4, 5) else 64
                config[48 + tile] = x_rows if tile in (6, 7) else 16
            kind = ir.VectorType(I8, 64)
            builder.store(ir.Constant(kind, list(config)), pointer(builder, args[0], kind), align=1)
            call_named(builder, "llvm.x86.ldtilecfg", _VOID, [pointer(builder, args[0], I8)])
            return context.get_dummy_value()

        return types.void(types.intp), codegen

    begin.__doc__ = doc
    return intrinsic(begin)


tiles_begin = _begin(
    64, 16, "Configure all tiles as 16 rows of 64 bytes; ``scratch`` has 64 bytes to spare."
)
blocks_begin = _begin(
    32, 8, "As tiles_begin, for blocks of 32 bytes: weights half as wide, activations half as high."
)

groups_begin = _begin(16, 4, "As tiles_begin, for groups of 16 bytes: a quarter of either.")


@intrinsic
def tiles_end(typingctx: Any) -> Any:
    """Release the tiles: a thread that holds them is slower to switch."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        call_named(builder, "llvm.x86.tilerelease", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def tiles_zero(typingctx: Any) -> Any:
    """Sums 0 to 3 to zero."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for tile in range(4):
            call_named(builder, "llvm.x86.tilezero", _VOID, [I8(tile)])
        return context.get_dummy_value()

    return types.void(), codegen


def _emit(builder: Any, name: str, steps: list[tuple[int, ...]], addresses: Sequence[Any]) -> None:
    """Steps of two are loads (tile, address number), steps of three products (sum, w, x)."""
    for step in steps:
        if len(step) == 2:
            at = addresses[step[1]]
            call_named(
                builder, "llvm.x86.tileloadd64", _VOID,
                [I8(step[0]), pointer(builder, at, I8), I64(64)],
            )  # fmt: skip
        else:
            call_named(builder, name, _VOID, [I8(tile) for tile in step])


def _wide(name: str, w_parts: int = 1, x_parts: int = 1) -> Callable[..., Any]:
    """Two weight tiles times two activation tiles; addresses: w0 w1 x0 x1, then their rests."""
    steps: list[tuple[int, ...]] = []
    # Between two uses of a sum lie three others.
    for w_part, x_part in ((0, 0), (0, 1), (1, 0)):
        if w_part >= w_parts or x_part >= x_parts:
            continue
        steps.extend(
            [(4, 4 * w_part), (6, 4 * x_part + 2), (7, 4 * x_part + 3), (5, 4 * w_part + 1)]
        )
        steps.extend([(0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)])

    @intrinsic
    def product(typingctx: Any, w0: Any, w1: Any, x0: Any, x1: Any) -> Any:
        """Add the products of two weight tiles and two activation tiles onto sums 0 to 3."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _emit(builder, name, steps, [*args, *(builder.add(a, I64(TILE_BYTES)) for a in args)])
            return context.get_dummy_value()

        intp = types.intp
        return types.void(intp, intp, intp, intp), codegen

    return product


def _narrow(name: str, w_parts: int = 1, x_parts: int = 1) -> Callable[..., Any]:
    """Weight tiles times one activation tile; addresses: w0 w1 w2 w3 x, then their rests.

    Four weight tiles with a sum each; of split weights two, with a sum each for the products of
    the first parts and a sum for the others, which must be added.
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

    @intrinsic
    def product(typingctx: Any, w: Any, stride: Any, x: Any) -> Any:
        """Add the products of weight tiles, ``stride`` bytes apart, and one of activations."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            first = [builder.add(args[0], builder.mul(args[1], I64(i))) for i in range(4)]
            first.append(args[2])
            _emit(builder, name, steps, [*first, *(builder.add(a, I64(TILE_BYTES)) for a in first)])
            return context.get_dummy_value()

        intp = types.intp
        return types.void(intp, intp, intp), codegen

    return product


_I8, _BF16 = "llvm.x86.tdpbssd", "llvm.x86.tdpbf16ps"
# By the parts of weights and of activations.
wide_i8, narrow_i8 = _wide(_I8), _narrow(_I8)
wide_bf16 = {parts: _wide(_BF16, *parts) for parts in ((1, 1), (1, 2), (2, 2))}
narrow_bf16 = {parts: _narrow(_BF16, *parts) for parts in ((1, 1), (1, 2), (2, 2))}


def _block(number: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    @intrinsic
    def block(typingctx: Any, w: Any, stride: Any, x: Any) -> Any:
        """One weight tile, rows ``stride`` bytes apart, times one of activations: to the sum."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            weights, tokens = 4 + number % 2, 6 + number % 2
            call_named(builder, "llvm.x86.tilezero", _VOID, [I8(number)])
            for tile, at, step in ((weights, args[0], args[1]), (tokens, args[2], I64(64))):
                operands = [I8(tile), pointer(builder, at, I8), step]
                call_named(builder, "llvm.x86.tileloadd64", _VOID, operands)
            call_named(builder, _I8, _VOID, [I8(number), I8(weights), I8(tokens)])
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), codegen

    @intrinsic
    def store(typingctx: Any, to: Any) -> Any:
        """The sum, 1024 bytes: [weight row][token]."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            operands = [I8(number), pointer(builder, args[0], I8), I64(64)]
            call_named(builder, "llvm.x86.tilestored64", _VOID, operands)
            return context.get_dummy_value()

        return types.void(types.intp), codegen

    return block, store


# By the tile of the sum.
block_0, store_0 = _block(0)
block_1, store_1 = _block(1)
block_2, store_2 = _block(2)
block_3, store_3 = _block(3)


@intrinsic
def tiles_store(typingctx: Any, address: Any) -> Any:
    """Sums 0 to 3, one after the other, 1024 bytes each: [weight row][token]."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        for tile in range(4):
            at = builder.add(args[0], I64(1024 * tile))
            call_named(
                builder, "llvm.x86.tilestored64", _VOID,
                [I8(tile), pointer(builder, at, I8), I64(64)],
            )  # fmt: skip
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def transpose_16x16(typingctx: Any, source: Any, target: Any, stride: Any) -> Any:
    """16 rows of 16 words, ``stride`` bytes apart, to their transpose, 64 bytes a row."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = I32X16.ir
        rows = [
            builder.load(
                pointer(builder, builder.add(args[0], builder.mul(args[2], I64(i))), kind), align=1
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
                mixed[i] = shuffle(builder, rows[i], rows[i + step], low)
                mixed[i + step] = shuffle(builder, rows[i], rows[i + step], high)
            rows = mixed
        for i, row in enumerate(rows):
            builder.store(row, pointer(builder, builder.add(args[1], I64(64 * i)), kind), align=1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def bf16_rest(typingctx: Any, value: Any) -> Any:
    """What rounding float32 to bfloat16 leaves: value - bfloat16(value), exact."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.VectorType(_BFloat(), 16)
        short = call_named(builder, "llvm.x86.avx512bf16.cvtneps2bf16.512", kind, [args[0]])
        wide = builder.zext(builder.bitcast(short, ir.VectorType(I16, 16)), I32X16.ir)
        bits = builder.shl(wide, ir.Constant(I32X16.ir, [16] * 16))
        return builder.fsub(args[0], builder.bitcast(bits, F32X16.ir))

    return F32X16(F32X16), codegen


@intrinsic
def cut_bf16(typingctx: Any, value: Any) -> Any:
    """Float32 with the bits that bfloat16 lacks set to 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], I32X16.ir)
        kept = builder.and_(bits, ir.Constant(I32X16.ir, [-65536] * 16))
        return builder.bitcast(kept, F32X16.ir)

    return F32X16(F32X16), codegen


class _BFloat(ir.Type):  # type: ignore[misc]
    def _to_string(self) -> str:
        return "bfloat"


def emit_bf16x32(builder: Any, low: Any, high: Any) -> Any:
    """<32 x i16>: the bfloat16 nearest to 16 + 16 float32, half to even."""
    kind = ir.VectorType(_BFloat(), 32)
    both = call_named(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", kind, [high, low])
    return builder.bitcast(both, ir.VectorType(I16, 32))


@intrinsic
def store_bf16x32(typingctx: Any, address: Any, low: Any, high: Any) -> Any:
    """32 float32 rounded to nearest-even bfloat16, written to ``address`` in order."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = emit_bf16x32(builder, args[1], args[2])
        builder.store(words, pointer(builder, args[0], words.type), align=1)
        return context.get_dummy_value()

    return types.void(types.intp, F32X16, F32X16), codegen
