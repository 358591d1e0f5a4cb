"""A handler of SIGBUS: unreadable pages of a mapped file become zeros, and the file is marked.

If a file is truncated, or the disk fails to read it, the system sends SIGBUS to the process that
touches a mapped page, which would end the process. The handler maps pages of zeros in their place
and marks the file's entry in a table; whoever reads the file checks the mark afterwards. The
handler is compiled, because no Python code may run in it. Other bus errors go to the previous
handler.

Linux only; on other systems ``catch_bus_errors`` does nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
from typing import Any

from trinity_kernels._jit import c_function
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.isa import interpreted
from trinity_kernels.memory import get_i32, get_i64, set_i64

# The table, in int64: these words, then SLOTS entries of a mapping's start, end and mark.
FAULTS, MMAP, SIGNAL, RAISE, PREVIOUS, PASSED_ON, PAGE, ENTRIES = range(8)
SLOTS, ENTRY = 1024, 3
START, END, MARK = range(ENTRY)
WORDS = 8 + SLOTS * ENTRY

_PROT_READ, _MAP_FIXED_PRIVATE_ANONYMOUS = 1, 0x32  # of Linux, on x86 and ARM
_SI_CODE, _SI_ADDR = 8, 16  # byte offsets in siginfo_t of 64-bit Linux
_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000
_TELL = -1  # not a signal's number


def _table_slot(builder: Any) -> Any:
    """A global variable with the table's address, because a handler gets no argument of ours."""
    slot = builder.module.globals.get("trinity_bus_error_table")
    if slot is None:
        slot = ir.GlobalVariable(builder.module, simd.I64, "trinity_bus_error_table")
        slot.linkage, slot.initializer = "internal", simd.I64(0)
    return slot


@instructions("int64")
def _get_table(builder: Any) -> Any:
    return builder.load(_table_slot(builder))


@instructions("void", "intp")
def _set_table(builder: Any, table: Any) -> Any:
    builder.store(table, _table_slot(builder))


@instructions("int64", "intp", "intp", "intp")
def _call_mmap(builder: Any, function: Any, address: Any, nbytes: Any) -> Any:
    """Pages of zeros at ``address``, which is returned."""
    kind = ir.FunctionType(
        simd.I64, [simd.I64, simd.I64, simd.I32, simd.I32, simd.I32, simd.I64]
    ).as_pointer()
    flags = simd.I32(_PROT_READ), simd.I32(_MAP_FIXED_PRIVATE_ANONYMOUS), simd.I32(-1), simd.I64(0)
    return builder.call(builder.inttoptr(function, kind), [address, nbytes, *flags])


@instructions("void", "intp", "int32", "intp", "intp")
def _call_handler(builder: Any, function: Any, number: Any, info: Any, where: Any) -> Any:
    """``void f(int, siginfo_t *, void *)``, ``signal`` and ``raise`` of C as well."""
    kind = ir.FunctionType(ir.VoidType(), [simd.I32, simd.I64, simd.I64]).as_pointer()
    builder.call(builder.inttoptr(function, kind), [number, info, where])


def _on_bus_error(number: int, info: int, where: int) -> None:
    if number == _TELL:
        _set_table(info)
        return
    table = _get_table()
    by_access = get_i32(info + _SI_CODE) > 0
    if by_access:
        address = get_i64(info + _SI_ADDR)
        for i in range(get_i64(table + 8 * ENTRIES)):
            entry = table + 64 + 8 * ENTRY * i
            end = get_i64(entry + 8 * END)
            if get_i64(entry + 8 * START) <= address < end:
                # The rest of the mapping is unreadable as well: replace it after one fault.
                page = address // get_i64(table + 8 * PAGE) * get_i64(table + 8 * PAGE)
                if _call_mmap(get_i64(table + 8 * MMAP), page, end - page) == page:
                    set_i64(entry + 8 * MARK, 1)
                    set_i64(table + 8 * FAULTS, get_i64(table + 8 * FAULTS) + 1)
                    return
    previous = get_i64(table + 8 * PREVIOUS)
    if previous > 1 and not (by_access and get_i64(table + 8 * PASSED_ON) != 0):
        if by_access:  # if the fault repeats, the default action ends the process
            set_i64(table + 8 * PASSED_ON, 1)
        _call_handler(previous, number, info, where)
    elif by_access or previous == 0:
        _call_handler(get_i64(table + 8 * SIGNAL), number, 0, 0)
        if not by_access:
            _call_handler(get_i64(table + 8 * RAISE), number, 0, 0)


class _Action(ctypes.Structure):
    """``struct sigaction`` of 64-bit Linux, in glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_tables: list[Any] = []


def catch_bus_errors(table: Any) -> bool:
    """Install the handler, once in a process, and return whether it is installed.

    ``table``: an array of WORDS ctypes int64, which must live as long as the process.
    """
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or interpreted():
        return False
    if _tables:
        return True
    libc = ctypes.CDLL(None, use_errno=True)
    for word, name in ((MMAP, "mmap"), (SIGNAL, "signal"), (RAISE, "raise")):
        function = getattr(libc, name)
        table[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
    table[PAGE] = mmap.PAGESIZE
    table[ENTRIES] = SLOTS
    address = c_function(_on_bus_error, "int32", "intp", "intp")
    tell = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)
    tell(_TELL, ctypes.addressof(table), None)
    old, new = _Action(), _Action()
    if libc.sigaction(signal.SIGBUS, None, ctypes.byref(old)) != 0:
        return False
    table[PREVIOUS] = old.handler or 0
    new.handler, new.flags = address, _SA_SIGINFO | _SA_ONSTACK
    if libc.sigaction(signal.SIGBUS, ctypes.byref(new), None) != 0:
        return False
    _tables.append(table)
    return True
