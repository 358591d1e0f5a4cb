"""Blocks of rows of plain numbers times several tokens.

Each weight is converted, and each activation loaded, once for a block.
Numerics: the bits of dot_plain.py.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.deferred import cgutils, ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.columns import hidden
from trinity_kernels.ops.matmul.readers import reader_of, types_of
from trinity_kernels.quants.floats import Plain
from trinity_kernels.tags import chosen, constant

# Rows and tokens of a block, whose sums fit the registers.
SIZES = {"avx512vnni": (4, 4), "amx": (4, 4), "avx2": (2, 2), "neon-i8mm": (2, 2), "neon": (2, 2)}
TYPES = types_of(Plain)
# If the tokens have more than ``TOKEN_BYTES``, so many bytes of rows are multiplied by all of them
# before the next rows.
TOKEN_BYTES, ROW_BYTES = 1 << 17, 1 << 18


@constant
def block_size(isa: Any, qt: Any) -> tuple[int, int]:
    """Rows and tokens of a block; (0, 0) if the level or the type has no blocks."""
    return SIZES.get(isa.value, (0, 0)) if qt.value in TYPES else (0, 0)


@chosen
def dot_block(
    isa: Any, qt: Any, w: Any, w_stride: Any, rows: Any, x: Any, x_stride: Any, tokens: Any,
    k: Any, ahead: Any, pace: Any, to: Any,
) -> Any:  # fmt: skip
    """Write the sums of up to a block, ``rows`` by ``tokens``, to ``to`` as [row][token].

    ``k`` is a multiple of 16. With every 16 products it prefetches two cache lines, from ``ahead``
    on in steps of ``pace`` bytes.
    """
    if block_size(isa, qt) == (0, 0):

        def nothing(
            isa: Any, qt: Any, w: int, w_stride: int, rows: int, x: int, x_stride: int,
            tokens: int, k: int, ahead: int, pace: int, to: int,
        ) -> None:  # fmt: skip
            pass

        return nothing

    def body(
        isa: Any, qt: Any, w: int, w_stride: int, rows: int, x: int, x_stride: int, tokens: int,
        k: int, ahead: int, pace: int, to: int,
    ) -> None:  # fmt: skip
        emitted(isa, qt, w, w_stride, rows - 1, x, x_stride, tokens - 1, k, ahead, pace, to)

    return body


@instructions("intp")
def sums_on_stack(builder: Any) -> Any:
    """The address of 16 float32 in the stack frame of the calling function."""
    found = cgutils.alloca_once(builder, ir.ArrayType(simd.F32, 16))
    return builder.ptrtoint(found, simd.I64)


@instructions("void", "tag", "tag", *["intp"] * 10)
def emitted(
    builder: Any,
    isa: Any,
    qt: Any,
    w: Any,
    w_stride: Any,
    last_row: Any,
    x: Any,
    x_stride: Any,
    last_token: Any,
    k: Any,
    ahead: Any,
    pace: Any,
    to: Any,
) -> Any:
    """Emit a block; rows and tokens after the last are computed as the last."""
    rows, tokens = SIZES[isa.value]
    reader = reader_of(qt.value, Plain)

    def starts(base: Any, stride: Any, last: Any, count: int) -> list[Any]:
        found = []
        for i in range(count):
            over = builder.icmp_signed("<", last, simd.I64(i))
            number = builder.select(over, last, simd.I64(i))
            # Otherwise the compiler would compute it again with every 16 products.
            found.append(hidden(builder, builder.add(base, builder.mul(number, stride))))
        return found

    w_at = starts(w, w_stride, last_row, rows)
    x_at = starts(x, x_stride, last_token, tokens)
    sums = [
        [cgutils.alloca_once(builder, simd.F32X16.ir) for _ in range(tokens)] for _ in range(rows)
    ]
    for row in sums:
        for total in row:
            builder.store(ir.Constant(simd.F32X16.ir, None), total)
    with cgutils.for_range(builder, builder.sdiv(k, simd.I64(16))) as loop:
        x_step = builder.mul(loop.index, simd.I64(64))
        for line in (0, 64):
            at = builder.add(ahead, builder.mul(loop.index, pace))
            at = simd.pointer(builder, builder.add(at, simd.I64(line)), simd.I8)
            operands = [at, simd.I32(0), simd.I32(2), simd.I32(1)]
            simd.call_named(builder, "llvm.prefetch.p0", ir.VoidType(), operands)
        loaded = [reader.emit_load(builder, at, loop.index) for at in w_at]
        for t, at in enumerate(x_at):
            pointer = simd.pointer(builder, builder.add(at, x_step), simd.F32X16.ir)
            value = builder.load(pointer, align=1)
            for r, weight in enumerate(loaded):
                operands = [weight, value, builder.load(sums[r][t])]
                fused = simd.call_named(builder, "llvm.fma.v16f32", simd.F32X16.ir, operands)
                builder.store(fused, sums[r][t])
    found = _fold(builder, [builder.load(one) for row in sums for one in row])
    builder.store(found, simd.pointer(builder, to, found.type), align=1)


def _fold(builder: Any, vectors: list[Any]) -> Any:
    """The sum of the 16 lanes of each vector, in one vector; each has the bits of simd.fold."""
    lanes = 16  # of each sum
    while lanes > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True)) if vectors[1:] else []
        starts = range(0, (2 if pairs else 1) * vectors[0].type.count, lanes)
        low = [start + lane for start in starts for lane in range(lanes // 2)]
        high = [lane + lanes // 2 for lane in low]
        vectors = [
            builder.fadd(simd.shuffle(builder, a, b, low), simd.shuffle(builder, a, b, high))
            for a, b in pairs or [(vectors[0], vectors[0])]
        ]
        lanes //= 2
    return vectors[0]
