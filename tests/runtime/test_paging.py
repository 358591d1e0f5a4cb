"""Pages of the system that are prefetched, for page sizes of 4, 16 and 64 KiB."""

from __future__ import annotations

import mmap
import platform
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from trinity.runtime import paging

Calls = list[tuple[int, int, int]]


@pytest.fixture(params=[4096, 16384, 65536])
def page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size: int = request.param
    monkeypatch.setattr(mmap, "PAGESIZE", size)
    monkeypatch.setattr(sys, "platform", "linux")
    return size


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What madvise would have been called with."""
    found: Calls = []

    def madvise(start: int, nbytes: int, advice: int) -> int:
        found.append((start, nbytes, advice))
        return 0

    monkeypatch.setattr(paging, "_madvise", lambda: madvise)
    return found


# From and to, in pages.
WITHIN = [((0, 3), (0, 3)), ((0.5, 3.25), (1, 3)), ((0, 0.5), (0, 0)), ((1.25, 1.75), (2, 2))]


@pytest.mark.parametrize(("given", "expected"), WITHIN)
@pytest.mark.parametrize("ask", [paging.small_pages, paging.give_back])
def test_only_whole_pages(
    ask: object, given: tuple[float, float], expected: tuple[int, int], page: int, calls: Calls
) -> None:
    """Linux refuses an unaligned start, and rounds a length up to a whole page."""
    base = 64 << 20
    assert callable(ask)
    ask(base + int(given[0] * page), int((given[1] - given[0]) * page))
    ((start, nbytes, _),) = calls
    assert (start, nbytes) == (base + expected[0] * page, (expected[1] - expected[0]) * page)


def test_every_page_of_an_array_is_filled(
    page: int, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "_STEP", 4 * 65536)
    memory: NDArray[np.uint8] = np.zeros(20 * 65536, np.uint8)
    array = memory[1000 : 18 * 65536]
    monkeypatch.setattr(paging, "available_memory", lambda: 1 << 40)
    thread = paging.populate([array])
    assert thread is not None
    thread.join()
    assert all(start % page == 0 for start, _, _ in calls)
    ends = [start + nbytes for start, nbytes, _ in calls]
    assert calls[0][0] <= array.ctypes.data < calls[0][0] + page
    assert ends[-1] == array.ctypes.data + array.nbytes
    assert ends[:-1] == [start for start, _, _ in calls[1:]]


KEPT = """
import re, sys, threading
from trinity.runtime import paging

def anonymous():
    rollup = open("/proc/self/smaps_rollup").read()
    return int(re.search(r"^Anonymous:\\s+(\\d+) kB", rollup, re.M)[1]) >> 10

if sys.argv[1] == "bounded":
    paging.bound_kept_heap()
before = anonymous()

def work():
    for _ in range(3):
        block = bytearray(20 << 20)
        del block
    paging.give_back_heap()

for _ in range(4):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print(anonymous() - before)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's heap")
def test_a_threads_heap_keeps_little() -> None:
    """Without the limits a thread would keep the 20 MiB of its last array."""

    def kept(how: str) -> int:
        ended = subprocess.run(
            [sys.executable, "-c", KEPT, how], capture_output=True, text=True, check=True
        )
        return int(ended.stdout)

    assert kept("bounded") < 8
    assert kept("not") >= 19
