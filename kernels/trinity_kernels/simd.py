"""Functions of vectors: loads, stores, shuffles, conversions and arithmetic lane by lane.

+, -, *, /, &, |, ^, << and >> (logical) work on vectors (vectors.py) lane by lane; a product and a
sum are rounded separately, except in ``fma``. One kernel body serves every level, because LLVM
splits a vector that is wider than the CPU's registers. Only dot products of bytes differ by level
(byte_dots.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

from trinity_kernels.instructions import instructions
from trinity_kernels.vectors import F16 as F16
from trinity_kernels.vectors import F32 as F32
from trinity_kernels.vectors import F64 as F64
from trinity_kernels.vectors import I1 as I1
from trinity_kernels.vectors import I8 as I8
from trinity_kernels.vectors import I16 as I16
from trinity_kernels.vectors import I32 as I32
from trinity_kernels.vectors import I64 as I64
from trinity_kernels.vectors import Vec as Vec

F32X16, F32X8, I32X16, I32X8 = Vec("f32", 16), Vec("f32", 8), Vec("i32", 16), Vec("i32", 8)
I8X64, I8X32, I8X16, I16X32, I16X16 = (
    Vec("i8", 64), Vec("i8", 32), Vec("i8", 16), Vec("i16", 32), Vec("i16", 16),
)  # fmt: skip
F16X16, F64X8 = Vec("f16", 16), Vec("f64", 8)
F32X4, F32X2, I32X4, I64X2 = Vec("f32", 4), Vec("f32", 2), Vec("i32", 4), Vec("i64", 2)


# -- operators ---------------------------------------------------------------------------------


def _binary(op: Any, integer: str, floating: str | None) -> None:
    @infer_global(op)
    class _Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Vec) and args[0] == args[1]:
                return args[0](args[0], args[0])
            return None

    @lower_builtin(op, Vec, Vec)  # type: ignore[untyped-decorator]
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = floating if sig.return_type.is_float else integer
        if name is None:
            raise TypeError(f"no {op} for {sig.return_type}")
        return getattr(builder, name)(args[0], args[1])


_binary(operator.add, "add", "fadd")
_binary(operator.sub, "sub", "fsub")
_binary(operator.mul, "mul", "fmul")
_binary(operator.truediv, "sdiv", "fdiv")
_binary(operator.and_, "and_", None)
_binary(operator.or_, "or_", None)
_binary(operator.xor, "xor", None)
_binary(operator.lshift, "shl", None)
_binary(operator.rshift, "lshr", None)


# -- memory ------------------------------------------------------------------------------------


def pointer(builder: Any, address: Any, element: Any) -> Any:
    """An address as a typed LLVM pointer."""
    return builder.inttoptr(address, element.as_pointer())


def _loader(vec: Vec) -> Callable[..., Any]:
    @instructions(vec, "intp")
    def load(builder: Any, address: Any) -> Any:
        """The vector at ``address``, unaligned."""
        return builder.load(pointer(builder, address, vec.ir), align=1)

    return load


def _storer(vec: Vec) -> Callable[..., Any]:
    @instructions("void", "intp", vec)
    def store(builder: Any, address: Any, value: Any) -> Any:
        """Write the vector to ``address``, unaligned."""
        builder.store(value, pointer(builder, address, vec.ir), align=1)

    return store


load_f32x16 = _loader(F32X16)
load_i32x16, load_i32x8, load_f64x8 = _loader(I32X16), _loader(I32X8), _loader(F64X8)
load_i8x64, load_i8x32, load_i8x16 = _loader(I8X64), _loader(I8X32), _loader(I8X16)
store_f32x16 = _storer(F32X16)
store_i32x16, store_i8x64, store_i8x32 = _storer(I32X16), _storer(I8X64), _storer(I8X32)
store_i8x16, store_i32x8, store_i16x32 = _storer(I8X16), _storer(I32X8), _storer(I16X32)
store_f64x8 = _storer(F64X8)


@instructions("f32x16", "intp")
def load_f16x16(builder: Any, address: Any) -> Any:
    """16 float16 at ``address``, widened to float32 (exact)."""
    half = builder.load(pointer(builder, address, F16X16.ir), align=1)
    return builder.fpext(half, F32X16.ir)


@instructions("f64x8", "intp")
def load_f32x8_as_f64(builder: Any, address: Any) -> Any:
    """8 float32 at ``address``, widened to float64 (exact)."""
    return builder.fpext(builder.load(pointer(builder, address, F32X8.ir), align=1), F64X8.ir)


def _tail_loader(element: str) -> Callable[..., Any]:
    source = {"f32": F32, "f16": F16, "bf16": I16}[element]

    @instructions("f32x16", "intp", "intp")
    def load_tail(builder: Any, address: Any, count: Any) -> Any:
        """The first ``count`` (< 16) elements as float32, then zeros; reads nothing after them."""
        buffer = cgutils.alloca_once(builder, F32X16.ir)
        builder.store(ir.Constant(F32X16.ir, None), buffer)
        lanes = builder.bitcast(buffer, F32.as_pointer())
        start = builder.inttoptr(address, source.as_pointer())
        with cgutils.for_range(builder, count) as loop:
            value = builder.load(builder.gep(start, [loop.index]), align=1)
            if element == "f16":
                value = builder.fpext(value, F32)
            elif element == "bf16":
                value = builder.bitcast(builder.shl(builder.zext(value, I32), I32(16)), F32)
            builder.store(value, builder.gep(lanes, [loop.index]))
        return builder.load(buffer, align=1)

    return load_tail


# ops/matmul/readers.py finds these by their names.
load_tail_f32, load_tail_f16 = _tail_loader("f32"), _tail_loader("f16")
load_tail_bf16 = _tail_loader("bf16")


# -- constants, conversions ----------------------------------------------------------------------


def broadcast(builder: Any, scalar: Any, vec: Vec) -> Any:
    """Every lane of ``vec`` set to an LLVM scalar."""
    one = builder.insert_element(ir.Constant(vec.ir, ir.Undefined), scalar, I32(0))
    mask = ir.Constant(ir.VectorType(I32, vec.lanes), [0] * vec.lanes)
    return builder.shuffle_vector(one, ir.Constant(vec.ir, ir.Undefined), mask)


def unknown(builder: Any, number: int) -> Any:
    """A number that the compiler does not know: a loop of so many turns stays one."""
    kind = ir.FunctionType(I64, [I64])
    return builder.asm(kind, "", "=r,0", [I64(number)], False)


def pinned(builder: Any, vectors: list[Any]) -> list[Any]:
    """The same vectors of one type, of which the compiler knows nothing.

    They are made before anything that follows uses them, so the work stays in the order written.
    """
    kind, count = vectors[0].type, len(vectors)
    text = ",".join(["=x"] * count + [str(i) for i in range(count)])
    several = ir.FunctionType(ir.LiteralStructType([kind] * count), [kind] * count)
    found = builder.asm(several, "", text, vectors, True)
    return [builder.extract_value(found, i) for i in range(count)]


def _splatter(vec: Vec) -> Callable[..., Any]:
    scalar = "float32" if vec.is_float else "int64"

    @instructions(vec, scalar)
    def splat(builder: Any, value: Any) -> Any:
        """Every lane set to ``value``."""
        if not vec.is_float:
            value = builder.trunc(value, vec.ir.element)
        return broadcast(builder, value, vec)

    return splat


splat_f32x16, splat_i32x16, splat_i32x8 = _splatter(F32X16), _splatter(I32X16), _splatter(I32X8)
splat_i8x64, splat_i8x32, splat_i8x16 = _splatter(I8X64), _splatter(I8X32), _splatter(I8X16)


def _bitcast(source: Vec, target: Vec) -> Callable[..., Any]:
    @instructions(target, source)
    def bitcast(builder: Any, value: Any) -> Any:
        """The same bits as another vector type."""
        return builder.bitcast(value, target.ir)

    return bitcast


i32x16_as_f32x16, i32x16_as_i8x64 = _bitcast(I32X16, F32X16), _bitcast(I32X16, I8X64)


@instructions("i8x64", "i8x64", "int64")
def shift_right_i8x64(builder: Any, value: Any, count: Any) -> Any:
    """Unsigned bytes shifted right by ``count`` bits."""
    return builder.lshr(value, broadcast(builder, builder.trunc(count, I8), I8X64))


def _shift_arithmetic(vec: Vec) -> Callable[..., Any]:
    @instructions(vec, vec, "int64")
    def ashr(builder: Any, value: Any, count: Any) -> Any:
        """Lanes shifted right by ``count`` bits, the sign kept."""
        return builder.ashr(value, broadcast(builder, builder.trunc(count, I32), vec))

    return ashr


ashr_i32x16, ashr_i32x8 = _shift_arithmetic(I32X16), _shift_arithmetic(I32X8)


@instructions("i8x16", "uint32")
def repeat_4_i8x16(builder: Any, value: Any) -> Any:
    """Four bytes, four times."""
    vec = ir.VectorType(I32, 4)
    one = builder.insert_element(ir.Constant(vec, ir.Undefined), value, I32(0))
    return builder.bitcast(shuffle(builder, one, one, [0, 0, 0, 0]), I8X16.ir)


@instructions("f32x16", "i32x16")
def to_f32x16(builder: Any, value: Any) -> Any:
    """Signed integers to float32, rounded to nearest even."""
    return builder.sitofp(value, F32X16.ir)


@instructions("i32x16", "f32x16")
def round_i32x16(builder: Any, value: Any) -> Any:
    """Float32 to signed integers, half to even."""
    whole = call_named(builder, "llvm.rint.v16f32", F32X16.ir, [value])
    return builder.fptosi(whole, I32X16.ir)


@instructions("i8x16", "i32x16")
def narrow_i8x16(builder: Any, value: Any) -> Any:
    """The low byte of each 32-bit lane."""
    return builder.trunc(value, I8X16.ir)


@instructions("i32x16", "i8x64", "literal")
def widen_quarter_i8x64(builder: Any, value: Any, quarter: Any) -> Any:
    """Signed bytes 16 q to 16 q + 15, q a literal, to 32-bit lanes."""
    start = 16 * quarter
    part = shuffle(builder, value, value, list(range(start, start + 16)))
    return builder.sext(part, I32X16.ir)


@instructions("i32x16", "i8x16")
def widen_i8x16(builder: Any, value: Any) -> Any:
    """Signed bytes to 32-bit lanes."""
    return builder.sext(value, I32X16.ir)


def call_named(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    """Call an LLVM intrinsic by its name."""
    fn_type = ir.FunctionType(result, [a.type for a in args])
    fn = builder.module.globals.get(name) or ir.Function(builder.module, fn_type, name)
    return builder.call(fn, args)


def _unary_f32(name: str) -> Callable[..., Any]:
    @instructions("f32x16", "f32x16")
    def unary(builder: Any, value: Any) -> Any:
        return call_named(builder, f"{name}.v16f32", F32X16.ir, [value])

    return unary


abs_f32x16 = _unary_f32("llvm.fabs")
rint_f32x16 = _unary_f32("llvm.rint")  # half to even
floor_f32x16 = _unary_f32("llvm.floor")


@instructions("f32x16", "f32x16", "f32x16", "f32x16")
def fma_f32x16(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return call_named(builder, "llvm.fma.v16f32", F32X16.ir, [a, b, c])


def _minmax(predicate: str) -> Callable[..., Any]:
    @instructions("f32x16", "f32x16", "f32x16")
    def pick(builder: Any, a: Any, b: Any) -> Any:
        first = builder.fcmp_ordered(predicate, a, b)
        return builder.select(first, a, b)

    return pick


max_f32x16 = _minmax(">")  # a if a > b else b
min_f32x16 = _minmax("<")  # a if a < b else b


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """LLVM's shufflevector with constant lanes; those of ``b`` count on from those of ``a``."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def fold(builder: Any, value: Any, lanes: int, op: str) -> Any:
    """Fold the upper half onto the lower until one lane is left: the one order of all sums."""
    while lanes > 1:
        half = lanes // 2
        low = shuffle(builder, value, value, list(range(half)))
        high = shuffle(builder, value, value, list(range(half, lanes)))
        if op == "fmax":
            value = builder.select(builder.fcmp_ordered(">", low, high), low, high)
        else:
            value = getattr(builder, op)(low, high)
        lanes = half
    return builder.extract_element(value, I32(0))


def _reducer(vec: Vec, op: str, result: str) -> Callable[..., Any]:
    @instructions(result, vec)
    def reduce(builder: Any, value: Any) -> Any:
        return fold(builder, value, vec.lanes, op)

    return reduce


sum_f32x16 = _reducer(F32X16, "fadd", "float32")  # by the fixed tree: lane i + lane i + 8, ..
max_lane_f32x16 = _reducer(F32X16, "fmax", "float32")
sum_i32x16 = _reducer(I32X16, "add", "int32")


def _concat(part: Vec, whole: Vec) -> Callable[..., Any]:
    @instructions(whole, part, part)
    def concat(builder: Any, low: Any, high: Any) -> Any:
        """``low`` followed by ``high``."""
        return shuffle(builder, low, high, list(range(whole.lanes)))

    return concat


concat_i8x16, concat_i8x32 = _concat(I8X16, I8X32), _concat(I8X32, I8X64)


@instructions("i32x16")
def lane_index(builder: Any) -> Any:
    """0, 1, .. 15."""
    return ir.Constant(I32X16.ir, list(range(16)))


@instructions("f32x16", "i32x16", "int64", "f32x16", "f32x16")
def select_below(builder: Any, index: Any, limit: Any, value: Any, other: Any) -> Any:
    """``value`` in the lanes whose ``index`` < ``limit``, else ``other``."""
    bound = broadcast(builder, builder.trunc(limit, I32), I32X16)
    return builder.select(builder.icmp_signed("<", index, bound), value, other)


@instructions("i8x64", "i8x64")
def trits_i8x64(builder: Any, value: Any) -> Any:
    """The top base-3 digit of each byte read as a fraction of 256: (byte * 3) >> 8."""
    vec = I8X64.ir
    one = builder.icmp_unsigned(">=", value, ir.Constant(vec, [86] * 64))
    two = builder.icmp_unsigned(">=", value, ir.Constant(vec, [171] * 64))
    return builder.add(builder.zext(one, vec), builder.zext(two, vec))


@instructions("f32x16", "f32x16", "f32x16", "f32x16", "f32x16")
def select_less(builder: Any, a: Any, b: Any, value: Any, other: Any) -> Any:
    """``value`` in the lanes where a < b, else ``other``."""
    return builder.select(builder.fcmp_ordered("<", a, b), value, other)


# -- hints ---------------------------------------------------------------------------------------


def _prefetcher(locality: int, write: int = 0) -> Callable[..., Any]:
    @instructions("void", "intp")
    def prefetch(builder: Any, address: Any) -> Any:
        line = pointer(builder, address, I8)
        hints = [line, I32(write), I32(locality), I32(1)]
        call_named(builder, "llvm.prefetch.p0", ir.VoidType(), hints)

    return prefetch


# Each asks for the cache line at an address and never faults.
prefetch = _prefetcher(3)
prefetch_l2 = _prefetcher(2)  # no nearer than the second-level cache
prefetch_write = _prefetcher(3, 1)  # for a line that will be written
