"""float16 on processors without its instructions, compared with NumPy bit for bit."""

from __future__ import annotations

import platform

import pytest

from tests.kernels.process import run_python

# Compiled for x86 without F16C. NaNs may differ in their payload, which nothing looks at.
COMPARE = """
import numba
import numpy as np
from trinity_kernels import compiled_copy, processor

compiled_copy.module("trinity_kernels.compiler")
memory = compiled_copy.module("trinity_kernels.memory")
assert "f16c" not in processor.target().has

@numba.njit
def widen(halves, floats, count):
    for i in range(count):
        memory.set_f32(floats + 4 * i, memory.get_f16(halves + 2 * i))

@numba.njit
def narrow(floats, halves, count):
    for i in range(count):
        memory.set_f16(halves + 2 * i, memory.get_f32(floats + 4 * i))

halves = np.arange(2**16, dtype=np.uint16)
floats = np.zeros(2**16, np.float32)
widen(halves.ctypes.data, floats.ctypes.data, 2**16)
expected = halves.view(np.float16).astype(np.float32)
nan = np.isnan(expected)
assert np.array_equal(floats[~nan].view(np.uint32), expected[~nan].view(np.uint32))
assert np.isnan(floats[nan]).all()

rng = np.random.default_rng(7)
low, high = 0x32FF0000, 0x47810000  # below half the smallest float16, above the largest
words = np.concatenate([
    rng.integers(0, 2**32, 10**6, dtype=np.uint32),
    rng.integers(low, high, 10**6, dtype=np.uint32),
    np.arange(low, high, 4096, dtype=np.uint32),  # every tie between two float16
    np.arange(low, high, 4096, dtype=np.uint32) + 1,
    np.arange(low, high, 4096, dtype=np.uint32) - 1,
])
words = np.concatenate([words, words ^ 0x80000000, [0, 0x7F800000, 0x7F800001, 0x7FC00000]])
words = words.astype(np.uint32)
found = np.zeros(len(words), np.uint16)
narrow(words.ctypes.data, found.ctypes.data, len(words))
with np.errstate(all="ignore"):
    expected = words.view(np.float32).astype(np.float16)
nan = np.isnan(expected)
assert np.array_equal(found[~nan], expected[~nan].view(np.uint16))
assert np.isnan(found[nan].view(np.float16)).all()
print(len(words), nan.sum())
"""


@pytest.mark.full
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 alone lacks them")
@pytest.mark.parametrize("name", ["generic", "sandybridge"])
def test_conversions_are_numpys(name: str) -> None:
    count, nans = run_python(COMPARE, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="").split()
    assert int(count) > 4_000_000
    assert int(nans) > 1000
