"""exp in float32: its accuracy, and the same bits for 1 and for 16 values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kernels.launch import launch
from tests.kernels.operands import same_bits
from tests.kernels.reference import Floats
from trinity_kernels._jit import kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i64, set_f32
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16
from trinity_kernels.tags import chosen

X, OUT, COUNT = range(3, 6)


def _one_by_one(isa: Any, x: int, out: int, count: int) -> None:
    for i in range(count):
        set_f32(out + 4 * i, exp_f32(get_f32(x + 4 * i)))


def _vector_range(isa: Any, x: int, out: int, count: int) -> None:
    for i in range(0, count, 16):
        simd.store_f32x16(out + 4 * i, exp_f32x16(simd.load_f32x16(x + 4 * i)))


@chosen
def _range(isa: Any, x: Any, out: Any, count: Any) -> Any:
    return _one_by_one if isa.value == "portable" else _vector_range


@kernel
def exponentials(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    _range(
        isa, get_i64(record + 8 * X), get_i64(record + 8 * OUT), get_i64(record + 8 * COUNT)
    )  # fmt: skip


def exp(x: Floats, level: str) -> Floats:
    out = np.full_like(x, np.nan)
    launch(exponentials, level, "none", 1, {X: x, OUT: out, COUNT: len(x)})
    return out


@pytest.fixture(scope="module")
def samples() -> Floats:
    return np.linspace(-87.3, 88, 1 << 18, dtype=np.float32)


def test_relative_error(samples: Floats, level: str) -> None:
    expected = np.exp(samples.astype(np.float64))
    assert np.max(np.abs(exp(samples, level) / expected - 1)) < 3e-7


def test_levels_have_the_same_bits(samples: Floats, levels: tuple[str, ...]) -> None:
    expected = exp(samples, "portable")
    for level in levels:
        assert same_bits(exp(samples, level), expected), level


def test_ends_of_the_range(level: str) -> None:
    x = np.zeros(16, np.float32)
    x[:6] = [0, -0.0, -87.4, -np.inf, 1000, np.inf]
    found = exp(x, level)
    assert found[:4].tolist() == [1, 1, 0, 0]
    assert np.all(found[4:6] == exp(np.full(16, 88, np.float32), level)[0])
