"""Memory between protected pages: an access beyond either end crashes at once."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
AVAILABLE = sys.platform == "linux"  # protects pages with its mprotect


def guarded(nbytes: int, *, at_end: bool = True, alignment: int = 1) -> Bytes:
    """Zeros between two protected pages, up against the one behind or the one before.

    ``alignment``: of the address; up against the page behind, fewer bytes than that may be left.
    """
    page = mmap.PAGESIZE
    whole = -(-max(nbytes, 1) // page) * page
    memory = np.frombuffer(mmap.mmap(-1, whole + 2 * page), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    for start in (0, whole + page):
        address = ctypes.c_void_p(memory.ctypes.data + start)
        if libc.mprotect(address, ctypes.c_size_t(page), ctypes.c_int(0)) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    start = page
    if at_end:
        start += (whole - nbytes) // alignment * alignment
    return memory[start : start + nbytes]


def guarded_copy(data: NDArray[np.generic], *, at_end: bool = True) -> NDArray[np.generic]:
    """Copy ``data`` between protected pages."""
    plain = np.ascontiguousarray(data)
    copy = guarded(plain.nbytes, at_end=at_end).view(plain.dtype).reshape(plain.shape)
    copy[...] = plain
    return copy
