"""The k largest values, compared with a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.process import run_python
from tests.matrix import parts
from trinity_kernels.ops.select import largest


def sorted_first(values: NDArray[np.float32], k: int) -> list[int]:
    found: list[int] = np.argsort(-values, kind="stable")[:k].tolist()
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("part", parts(3))
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_values(part: int, data: st.DataObject) -> None:
    numbers = st.floats(width=32, allow_nan=False)
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf])
    values = np.array(data.draw(st.lists(numbers | few, min_size=1, max_size=60)), np.float32)
    k = data.draw(st.integers(1, len(values)))
    assert largest(values, k).tolist() == sorted_first(values, k)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 50), st.integers(0, 2**32), st.data())
def test_many_equal_values(size: int, distinct: int, seed: int, data: st.DataObject) -> None:
    values = np.random.default_rng(seed).integers(-distinct, distinct, size).astype(np.float32)
    k = data.draw(st.integers(1, size))
    assert largest(values, k).tolist() == sorted_first(values, k)


@pytest.mark.parametrize("k", [1, 40, 2000, 70_000])
def test_large(k: int) -> None:
    values = np.random.default_rng(0).normal(0, 3, 128_257).astype(np.float32)
    assert largest(values, k).tolist() == sorted_first(values, k)


def test_uncompiled() -> None:
    program = """
import numpy as np
from trinity_kernels.ops.select import largest
values = np.array([1, 3, -0.0, 0, 3, -2], np.float32)
print(largest(values, 6).tolist())
"""
    assert run_python(program, NUMBA_DISABLE_JIT="1").strip() == "[1, 4, 0, 2, 3, 5]"
