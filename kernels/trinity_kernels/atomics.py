"""Atomic operations on int64, spinning, and calls through addresses, for the team of threads."""

from __future__ import annotations

from typing import Any

from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions


@instructions("void")
def pause(builder: Any) -> Any:
    """Tell the core that this is a spin loop, and wait some 10 to 40 ns.

    ARM uses ISB, which empties the pipeline, because YIELD takes one cycle on cores without SMT.
    Source: Rust's core::hint::spin_loop, which does the same.
    """
    if "x86" in builder.module.triple or "amd64" in builder.module.triple:
        simd.call_named(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
    elif "arm64" in builder.module.triple or "aarch64" in builder.module.triple:
        simd.call_named(builder, "llvm.aarch64.isb", ir.VoidType(), [simd.I32(15)])


@instructions("int64", "intp", "int64")
def atomic_add(builder: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at ``address`` and return the previous value. A full barrier."""
    return builder.atomic_rmw("add", simd.pointer(builder, address, simd.I64), value, "seq_cst")


@instructions("int64", "intp")
def atomic_load(builder: Any, address: Any) -> Any:
    """The int64 at ``address``. Later reads are not moved before it (acquire)."""
    return builder.load_atomic(simd.pointer(builder, address, simd.I64), "seq_cst", 8)


@instructions("void", "intp", "int64")
def atomic_store(builder: Any, address: Any, value: Any) -> Any:
    """Set the int64 at ``address``. Earlier writes are not moved after it (release)."""
    builder.store_atomic(value, simd.pointer(builder, address, simd.I64), "release", 8)


@instructions("int64", "intp", "int64", "int64")
def atomic_compare_exchange(builder: Any, address: Any, expected: Any, value: Any) -> Any:
    """Set the int64 at ``address`` if it is ``expected``, and return the previous value.

    A full barrier.
    """
    pair = builder.cmpxchg(
        simd.pointer(builder, address, simd.I64), expected, value, "seq_cst", "seq_cst"
    )
    return builder.extract_value(pair, 0)


@instructions("void", *["intp"] * 4)
def call_kernel(builder: Any, kernel: Any, record: Any, thread: Any, threads: Any) -> Any:
    """Call the kernel at an address: void(i8*, i8*, i64 record, i64 thread, i64 threads)."""
    tag = simd.I8.as_pointer()
    fn_type = ir.FunctionType(ir.VoidType(), [tag, tag, simd.I64, simd.I64, simd.I64])
    fn = builder.inttoptr(kernel, fn_type.as_pointer())
    null = ir.Constant(tag, None)
    builder.call(fn, [null, null, record, thread, threads])


@instructions("void", "intp")
def call_void(builder: Any, function: Any) -> Any:
    """Call the C function ``int f(void)`` at an address."""
    fn = builder.inttoptr(function, ir.FunctionType(simd.I32, []).as_pointer())
    builder.call(fn, [])


@instructions("void", "intp", "intp")
def take_lock(builder: Any, function: Any, lock: Any) -> Any:
    """Wait for a lock by the C function ``int f(void *lock, int wait)`` at an address."""
    fn = builder.inttoptr(function, ir.FunctionType(simd.I32, [simd.I64, simd.I32]).as_pointer())
    builder.call(fn, [lock, simd.I32(1)])


@instructions("void", "intp", "intp")
def untie_lock(builder: Any, function: Any, lock: Any) -> Any:
    """Release a lock of any thread by the C function ``void f(void *lock)`` at an address."""
    fn = builder.inttoptr(function, ir.FunctionType(ir.VoidType(), [simd.I64]).as_pointer())
    builder.call(fn, [lock])
