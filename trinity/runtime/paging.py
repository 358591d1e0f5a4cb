"""Maps the pages of the weights into memory in the background, before the first step."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MADV_DONTNEED = 4
_MADV_NOHUGEPAGE = 15
_MADV_POPULATE_READ = 22  # Linux 5.14; older kernels return EINVAL, and pages are mapped one by one
_STEP = 64 << 20
# glibc's mallopt parameters: the size from which an array has a mapping of its own, which is
# unmapped when it is freed; and the freed memory that is kept at the end of a heap.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
MAPPED_BYTES, KEPT_BYTES = 8 << 20, 16 << 20


class Populating(threading.Thread):
    """A thread that fills the page tables of ``arrays``, in order, until it is told to end."""

    def __init__(self, arrays: list[NDArray[np.uint8]]) -> None:
        super().__init__(name="trinity-pages", daemon=True)
        self._arrays = arrays
        self._ending = threading.Event()

    def run(self) -> None:
        """The thread's work."""
        arrays, self._arrays = self._arrays, []  # so that the thread does not keep the arrays alive
        madvise = _madvise()
        for array in arrays:
            start = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
            end = array.ctypes.data + array.nbytes
            for address in range(start, end, _STEP):
                nbytes = min(_STEP, end - address)
                if self._ending.is_set() or madvise(address, nbytes, _MADV_POPULATE_READ) != 0:
                    return

    def end(self) -> None:
        """End the thread and wait; it stops at the next part."""
        self._ending.set()
        self.join()


def populate(arrays: Iterable[NDArray[np.uint8]]) -> Populating | None:
    """Fill the page tables of ``arrays`` in a new thread; None if that is not possible.

    One page fault per few pages costs more than reading them: half a second for a file of 1.2 GB
    that is in memory already. A file on disk is read in order meanwhile. At most half of the free
    memory is filled.
    """
    if sys.platform != "linux":
        return None
    kept = list(arrays)
    total = sum(array.nbytes for array in kept)
    if 2 * total > available_memory():
        return None
    thread = Populating(kept)
    thread.start()
    return thread


def small_pages(address: int, nbytes: int) -> None:
    """Let the system fill this memory page by page rather than in large pages."""
    if sys.platform == "linux":
        _madvise()(*_whole_pages(address, nbytes), _MADV_NOHUGEPAGE)


def give_back(address: int, nbytes: int) -> bool:
    """Return this memory to the system, so that it reads as zeros; False if it cannot."""
    if sys.platform != "linux":
        return False
    return bool(_madvise()(*_whole_pages(address, nbytes), _MADV_DONTNEED) == 0)


def _whole_pages(address: int, nbytes: int) -> tuple[int, int]:
    """The start and the size of the whole pages inside; the system would round the size up."""
    page = mmap.PAGESIZE  # pages are 4, 16 or 64 KiB
    start = -(-address // page) * page
    return start, max(0, (address + nbytes - start) // page * page)


def give_back_heap() -> None:
    """Return freed memory that the C library keeps to the system; only glibc has a call for it.

    glibc keeps freed arrays of less than 32 MiB, and all memory below an array in use.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def bound_kept_heap() -> None:
    """Bound what glibc keeps of freed memory for each thread.

    ``give_back_heap`` does not return the end of the heap of a thread other than the main one, and
    glibc's own limits grow with the largest freed array, to 32 and 64 MiB.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl does not have it
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
            mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


@cache
def _malloc_trim() -> Any:
    if sys.platform != "linux":
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl does not have it
    if trim is not None:
        trim.argtypes = (ctypes.c_size_t,)
    return trim


@cache
def _madvise() -> Any:
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return madvise


def available_memory() -> int:
    """Bytes of memory that are free or can be freed; 0 if unknown."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
