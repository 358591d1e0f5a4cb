"""Machine code in memory: copied, made executable, never writable and executable at once.

Code stays until the process ends, since other threads may be in it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

from trinity_kernels.flat_code import FlatCode

# The C functions that code may call. All of them compute; none reaches anything else.
CALLS = frozenset({
    "exp2", "exp2f", "floor", "floorf", "fma", "fmaf", "memcpy", "memmove", "memset", "nearbyint",
    "nearbyintf", "rint", "rintf",
})  # fmt: skip
_READ, _WRITE, _EXECUTE = 1, 2, 4


def supported() -> bool:
    """Whether this module loads code on this system."""
    return sys.platform == "linux" and sys.maxsize > 1 << 32


@cache
def function_address(name: str) -> int | None:
    """Where a C function of CALLS is; None if this process does not have it."""
    if name in CALLS:
        for library in (None, "libm.so.6"):
            try:
                function = getattr(ctypes.CDLL(library), name)
            except (OSError, AttributeError):
                continue
            return ctypes.cast(function, ctypes.c_void_p).value
    return None


def loadable(flat: FlatCode) -> bool:
    """Whether all that the code calls is there."""
    return supported() and all(function_address(name) for name, _ in flat.calls)


def load(flat: FlatCode) -> int:
    """The address of the function. The code must be ``loadable``. Raises: OSError."""
    code = bytearray(flat.code)
    for name, offset in flat.calls:
        code[offset : offset + 8] = (function_address(name) or 0).to_bytes(8, "little")
    libc = _libc()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start = libc.mmap(None, len(code) + flat.variables, _READ | _WRITE, flags, -1, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "no memory for a kernel's code")
    ctypes.memmove(start, bytes(code), len(code))
    # On ARM, Linux brings the instruction cache up to date where a page becomes executable.
    if libc.mprotect(start, len(code), _READ | _EXECUTE) != 0:
        raise OSError(ctypes.get_errno(), "the system does not let memory become executable")
    return int(start) + flat.entry


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return libc
