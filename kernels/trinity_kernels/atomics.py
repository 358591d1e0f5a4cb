"""Atomic int64 in memory, waiting, and calls through addresses: what the team is made of."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from trinity_kernels._jit import intrinsic
from trinity_kernels.simd import I8, I32, I64, call_named, pointer


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the core that this is a spin loop, and let some 10 to 40 ns pass.

    On ARM by ISB, which empties the pipeline: YIELD is over in a cycle on cores without SMT.
    Source: Rust's core::hint::spin_loop, which does the same.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if "x86" in builder.module.triple or "amd64" in builder.module.triple:
            call_named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        elif "arm64" in builder.module.triple or "aarch64" in builder.module.triple:
            call_named(builder, "llvm.aarch64.isb", ir.VoidType(), [I32(15)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def atomic_add(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at ``address``; the value before. A full barrier."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", pointer(builder, args[0], I64), args[1], "seq_cst")

    return types.int64(types.intp, types.int64), codegen


@intrinsic
def atomic_load(typingctx: Any, address: Any) -> Any:
    """The int64 at ``address``; later reads stay behind it."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(pointer(builder, args[0], I64), "seq_cst", 8)

    return types.int64(types.intp), codegen


@intrinsic
def atomic_store(typingctx: Any, address: Any, value: Any) -> Any:
    """Set the int64 at ``address``; earlier writes stay before it."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], pointer(builder, args[0], I64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.int64), codegen


@intrinsic
def atomic_compare_exchange(typingctx: Any, address: Any, expected: Any, value: Any) -> Any:
    """Set the int64 at ``address`` if it is ``expected``; the value before. A full barrier."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pair = builder.cmpxchg(
            pointer(builder, args[0], I64), args[1], args[2], "seq_cst", "seq_cst"
        )
        return builder.extract_value(pair, 0)

    return types.int64(types.intp, types.int64, types.int64), codegen


@intrinsic
def call_kernel(typingctx: Any, kernel: Any, record: Any, thread: Any, threads: Any) -> Any:
    """Call the kernel at an address: void(i8*, i8*, i64 record, i64 thread, i64 threads)."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        tag = I8.as_pointer()
        fn_type = ir.FunctionType(ir.VoidType(), [tag, tag, I64, I64, I64])
        fn = builder.inttoptr(args[0], fn_type.as_pointer())
        null = ir.Constant(tag, None)
        builder.call(fn, [null, null, *args[1:]])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), codegen


@intrinsic
def call_void(typingctx: Any, function: Any) -> Any:
    """Call the C function ``int f(void)`` at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = builder.inttoptr(args[0], ir.FunctionType(I32, []).as_pointer())
        builder.call(fn, [])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def take_lock(typingctx: Any, function: Any, lock: Any) -> Any:
    """Wait for a lock: the C function ``int f(void *lock, int wait)`` at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = builder.inttoptr(args[0], ir.FunctionType(I32, [I64, I32]).as_pointer())
        builder.call(fn, [args[1], I32(1)])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def untie_lock(typingctx: Any, function: Any, lock: Any) -> Any:
    """Release a lock, whoever took it: the C function ``void f(void *lock)`` at an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [I64]).as_pointer())
        builder.call(fn, [args[1]])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen
