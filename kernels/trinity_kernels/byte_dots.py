"""Dot products of bytes, whose instructions differ by level.

The functions of compiled code take the level as a tag, their first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions


def _parts(builder: Any, value: Any, lanes: int, count: int) -> list[Any]:
    step = lanes // count
    return [
        simd.shuffle(builder, value, value, list(range(i * step, (i + 1) * step)))
        for i in range(count)
    ]


def _join(builder: Any, parts: list[Any], lanes: int) -> Any:
    while len(parts) > 1:
        width = 2 * lanes // len(parts)
        parts = [
            simd.shuffle(builder, parts[i], parts[i + 1], list(range(width)))
            for i in range(0, len(parts), 2)
        ]
    return parts[0]


def _vnni_operands(builder: Any, acc: Any, args: list[Any]) -> list[Any]:
    """The byte operands of vpdpbusd, which LLVM 21 and older declare as 32-bit lanes."""
    from llvmlite import binding

    if binding.llvm_version_info[0] >= 22:
        return [acc, *args]
    return [acc, *(builder.bitcast(a, acc.type) for a in args)]


def emit_dot_u8i8(level: str, builder: Any, acc: Any, u: Any, s: Any) -> Any:
    """acc <16 x i32> + sums of 4 neighbouring products of u <64 x i8> (unsigned) and s (signed).

    u must be below 128, because avx2 adds pairs of products in 16 bits and neon reads u as signed.
    ``emit_dot_bytes`` takes any u.
    """
    if level in ("avx512vnni", "amx"):
        args = _vnni_operands(builder, acc, [u, s])
        return simd.call_named(builder, "llvm.x86.avx512.vpdpbusd.512", acc.type, args)
    if level in ("neon-i8mm", "neon"):
        return emit_dot_i8i8(level, builder, acc, u, s)
    ones = ir.Constant(ir.VectorType(simd.I16, 16), [1] * 16)
    out = []
    for a, b, c in zip(
        _parts(builder, u, 64, 2), _parts(builder, s, 64, 2), _parts(builder, acc, 16, 2),
        strict=True,
    ):  # fmt: skip
        pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", ones.type, [a, b])
        fours = simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", c.type, [pairs, ones])
        out.append(builder.add(c, fours))
    return _join(builder, out, 16)


def emit_dot_i8i8(level: str, builder: Any, acc: Any, w: Any, a: Any) -> Any:
    """acc <16 x i32> + sums of 4 neighbouring products of signed bytes; w may be -128, a may not.

    x86 multiplies unsigned by signed bytes: |w| by a with the sign of w.
    """
    if level in ("neon-i8mm", "neon"):
        out = []
        for x, y, z in zip(
            _parts(builder, w, 64, 4), _parts(builder, a, 64, 4), _parts(builder, acc, 16, 4),
            strict=True,
        ):  # fmt: skip
            out.append(
                simd.call_named(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", z.type, [z, x, y])
            )
        return _join(builder, out, 16)
    zero = ir.Constant(w.type, None)
    negative = builder.icmp_signed("<", w, zero)
    magnitude = builder.select(negative, builder.sub(zero, w), w)
    signed = builder.select(negative, builder.sub(zero, a), a)
    return emit_dot_u8i8(level, builder, acc, magnitude, signed)


def _dot(emit: Callable[..., Any]) -> Callable[..., Any]:
    @instructions("i32x16", "tag", "i32x16", "i8x64", "i8x64")
    def dot(builder: Any, isa: Any, acc: Any, a: Any, b: Any) -> Any:
        return emit(isa.value, builder, acc, a, b)

    return dot


def emit_dot_i8i8_sums(level: str, builder: Any, sums: Any, w: Any, a: Any) -> Any:
    """As emit_dot_i8i8 from zero; ``sums``: the negated sum of each 4 bytes of a.

    The sums let x86 use w + 128 as its unsigned operand without further cost.
    """
    if level in ("avx512vnni", "amx"):
        start = builder.shl(sums, ir.Constant(sums.type, [7] * 16))
        flipped = builder.xor(w, ir.Constant(w.type, [-128] * 64))
        return emit_dot_u8i8(level, builder, start, flipped, a)
    return emit_dot_i8i8(level, builder, ir.Constant(sums.type, None), w, a)


def emit_dot_bytes(level: str, builder: Any, acc: Any, u: Any, s: Any) -> Any:
    """As emit_dot_u8i8 for any u: avx2 multiplies 16 bits, neon uses u - 128 as a signed byte."""
    if level in ("avx512vnni", "amx"):
        return emit_dot_u8i8(level, builder, acc, u, s)
    if level in ("neon-i8mm", "neon"):
        ones = ir.Constant(u.type, [1] * 64)
        sums = emit_dot_i8i8(level, builder, ir.Constant(acc.type, None), ones, s)
        acc = builder.add(acc, builder.shl(sums, ir.Constant(acc.type, [7] * 16)))
        flipped = builder.xor(u, ir.Constant(u.type, [-128] * 64))
        return emit_dot_i8i8(level, builder, acc, flipped, s)
    out = []
    for a, b, total in zip(
        _parts(builder, u, 64, 2), _parts(builder, s, 64, 2), _parts(builder, acc, 16, 2),
        strict=True,
    ):  # fmt: skip
        for x, y in zip(_words(builder, a, False), _words(builder, b, True), strict=True):
            pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", total.type, [x, y])
            total = builder.add(total, pairs)
        out.append(total)
    return _join(builder, out, 16)


def _words(builder: Any, value: Any, signed: bool) -> tuple[Any, Any]:
    """The even and the odd bytes, as 16 bits."""
    kind = ir.VectorType(simd.I16, 16)
    both, eight = builder.bitcast(value, kind), ir.Constant(kind, [8] * 16)
    if not signed:
        return builder.and_(both, ir.Constant(kind, [255] * 16)), builder.lshr(both, eight)
    return builder.ashr(builder.shl(both, eight), eight), builder.ashr(both, eight)


dot_u8i8, dot_bytes = _dot(emit_dot_u8i8), _dot(emit_dot_bytes)
dot_i8i8, dot_i8i8_sums = _dot(emit_dot_i8i8), _dot(emit_dot_i8i8_sums)
