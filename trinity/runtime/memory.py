"""Allocates memory; if the system refuses it, the error says how much, for what, and what to do."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trinity.errors import TrinityError

SMALLER_CONTEXT = "use a smaller context_length (--ctx), or give the process more memory"


def zeros(
    shape: int | tuple[int, ...], dtype: DTypeLike, what: str, advice: str = SMALLER_CONTEXT
) -> NDArray[Any]:
    """As ``numpy.zeros``; ``what`` names the purpose. Raises: TrinityError if memory is refused."""
    count = shape if isinstance(shape, int) else math.prod(shape)
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, OverflowError, ValueError) as error:  # ValueError: beyond all addresses
        raise _refused(what, count * np.dtype(dtype).itemsize, advice) from error


def mapped(nbytes: int, what: str) -> NDArray[np.uint8]:
    """As ``zeros``, in a memory mapping that is returned to the system as soon as it is dropped.

    The C library may keep memory that ended threads allocated with malloc.
    """
    if sys.platform == "win32":
        return zeros(nbytes, "u1", what)
    try:
        # Private: a forked child must not write into its parent's memory.
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise _refused(what, nbytes, SMALLER_CONTEXT) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel has no large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Zeros that begin at a multiple of 64 bytes, as the widest vector loads need."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def row_bytes(width: int) -> int:
    """Bytes of a row of ``width`` float32, rounded up to a multiple of 64."""
    return -(-4 * width // 64) * 64


def _refused(what: str, nbytes: int, advice: str) -> TrinityError:
    size = _in_words(nbytes)
    return TrinityError(f"{what} needs {size} of memory, which the system refuses; {advice}")


@contextmanager
def enough_memory(what: str, advice: str = SMALLER_CONTEXT) -> Iterator[None]:
    """Turn a MemoryError in the block into a TrinityError."""
    try:
        yield
    except MemoryError as error:
        raise too_little_memory(error, what, advice) from error


def too_little_memory(error: MemoryError, what: str, advice: str = SMALLER_CONTEXT) -> TrinityError:
    """A MemoryError as an error with advice."""
    # NumPy's message contains the size that was refused.
    reason = f" ({error})" if str(error) else ""
    return TrinityError(f"not enough memory {what}{reason}; {advice}")


def _in_words(nbytes: int) -> str:
    size, units = float(nbytes), ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.3g} {units[0]}" if units[0] != "bytes" else f"{nbytes} bytes"
