"""The read bandwidth of memory, which limits the speed of decoding."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from trinity_kernels._jit import kernel
from trinity_kernels.deferred import simd
from trinity_kernels.isa import available_levels
from trinity_kernels.memory import get_i64, set_i64
from trinity_kernels.record import BARRIER, KERNEL, RECORD, ROWS
from trinity_kernels.tags import per_level
from trinity_kernels.team import Team

START, NBYTES, SINK = range(3, 6)


def _fold(isa: Any, start: int, nbytes: int) -> int:
    total = 0
    for i in range(0, nbytes, 8):
        total ^= get_i64(start + i)
    return total


def _vector_fold(isa: Any, start: int, nbytes: int) -> int:
    a = simd.splat_i32x16(0)
    b = simd.splat_i32x16(0)
    c = simd.splat_i32x16(0)
    d = simd.splat_i32x16(0)
    for i in range(0, nbytes, 256):
        a = a ^ simd.load_i32x16(start + i)
        b = b ^ simd.load_i32x16(start + i + 64)
        c = c ^ simd.load_i32x16(start + i + 128)
        d = d ^ simd.load_i32x16(start + i + 192)
    return int(simd.sum_i32x16(a ^ b ^ c ^ d))


per_level(_vector_fold)(_fold)


@kernel
def stream(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Read a thread's share of NBYTES, a multiple of 256 bytes, with the widest loads."""
    share = get_i64(record + 8 * NBYTES) // threads // 256 * 256
    total = _fold(isa, get_i64(record + 8 * START) + thread * share, share)
    set_i64(get_i64(record + 8 * SINK) + 64 * thread, total)


def read_bandwidth(threads: int, *, nbytes: int = 1 << 30, rounds: int = 5) -> float:
    """Bytes per second that ``threads`` threads read from anonymous memory together.

    Units: bytes/s. The result is the median of ``rounds`` passes over ``nbytes``, which should be
    several times the size of the last-level cache.
    """
    memory = np.ones(nbytes // 8, np.int64)
    sink = np.zeros(8 * threads, np.int64)
    rows = np.ones(1, np.int64)
    plan = np.zeros(1, RECORD)
    slots = plan["slots"][0]
    slots[[KERNEL, BARRIER, ROWS]] = stream.address(available_levels()[0]), 1, rows.ctypes.data
    slots[[START, NBYTES, SINK]] = memory.ctypes.data, memory.nbytes, sink.ctypes.data
    team = Team(threads)
    try:
        times = []
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            team.run(plan)
            times.append(time.perf_counter() - begin)
    finally:
        team.close()
    read = nbytes // threads // 256 * 256 * threads
    return read / statistics.median(times[1:])
