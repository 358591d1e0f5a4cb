"""Quantizers: searches compared with ggml's bytes, compiled ones with NumPy's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.goldens.ggml_blocks import difficult_rows
from tests.kernels.process import run_python
from trinity_kernels.quantizers import SEARCHED, WRITABLE, quantize_rows
from trinity_kernels.quants import TYPES

Floats = NDArray[np.float32]
IN_BLOCKS = sorted(name for name in WRITABLE if TYPES[name].block_size > 1)
# The share of blocks with the very bytes of ggml: it contracts products and sums, so that scales
# of almost equal error change places now and then.
SAME = 0.9
# Rows with scales above 0; under 0 any code means the same.
COMMON = [0, 1, 2, 3, 4, 6, 7]


@cache
def ggml_rows() -> dict[str, NDArray[np.uint8]]:
    """Return ggml's bytes of the same rows (tests/goldens/ggml_blocks.py)."""
    with np.load(Path(__file__).parents[1] / "data" / "ggml_rows.npz") as found:
        return dict(found)


@pytest.mark.few(3)
@pytest.mark.parametrize("case", sorted(ggml_rows()))
def test_as_good_as_ggml(case: str) -> None:
    name = case.partition(" ")[0]
    rows, importance = difficult_rows()
    given = importance if "importance" in case else None
    quant, expected = TYPES[name], ggml_rows()[case]
    found = quantize_rows(name, rows, given)
    assert found.shape == (len(rows), quant.nbytes((1, rows.shape[1])))
    blocks = found.reshape(-1, quant.type_size), expected.reshape(-1, quant.type_size)
    same = (blocks[0] == blocks[1]).all(axis=1).reshape(len(rows), -1)
    assert same[COMMON].mean() >= SAME
    counts = np.float32(1) if given is None else given
    ours, theirs = (
        (counts * (quant.dequantize(data.reshape(-1), rows.shape).astype(float) - rows) ** 2)
        for data in (found, expected)
    )
    assert ours.sum() <= 1.01**2 * theirs.sum()
    for row in range(len(rows)):
        assert ours[row].sum() <= 1.05**2 * theirs[row].sum(), row


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_equals_the_numpy_quantizer_where_there_is_one(name: str) -> None:
    quant = TYPES[name]
    rows, _ = difficult_rows()
    if quant.encode_blocks is None:
        pytest.skip("only a search writes this type")
    if quant.ternary:
        rows = (np.sign(np.rint(rows)) * np.float32(0.5)).astype(np.float32)
    assert np.array_equal(quantize_rows(name, rows).reshape(-1), quant.quantize(rows))


@pytest.mark.full
@pytest.mark.parametrize("name", IN_BLOCKS)
def test_rows_do_not_depend_on_each_other(name: str) -> None:
    rows, importance = difficult_rows()
    together = quantize_rows(name, rows, importance)
    for row in range(len(rows)):
        alone = quantize_rows(name, rows[row : row + 1], importance)
        assert np.array_equal(alone[0], together[row]), row


@pytest.mark.parametrize("name", sorted(SEARCHED))
def test_importance_lowers_the_error_that_counts(name: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(8, 2048)).astype(np.float32)
    importance = (rng.random(2048) ** 8).astype(np.float32)
    errors = []
    for given in (None, importance):
        data = quantize_rows(name, rows, given).reshape(-1)
        error = (TYPES[name].dequantize(data, rows.shape) - rows) ** 2
        errors.append(float((importance * error).mean()))
    assert errors[1] < 0.97 * errors[0]


@pytest.mark.parametrize("power", [-20, 20])
@pytest.mark.parametrize("name", sorted(SEARCHED))
def test_only_the_ratios_of_importance_count(name: str, power: int) -> None:
    rows, importance = difficult_rows()
    scaled = np.ldexp(importance, power)
    assert np.array_equal(
        quantize_rows(name, rows[:2], importance), quantize_rows(name, rows[:2], scaled)
    )


def test_halves_of_q2_0_go_away_from_zero() -> None:
    """The reference is ggml's quantize_row_q2_0_ref()."""
    values = np.zeros((1, 64), np.float32)
    values[0, :6] = 1, 0.5, -0.5, 0.49, -0.49, 0.75
    found = TYPES["Q2_0"].dequantize(quantize_rows("Q2_0", values).reshape(-1), (64,))
    assert found[:6].tolist() == [1, 1, -1, 0, 0, 1]


@pytest.mark.parametrize("largest", [2.0**-124, 2.0**-126, 1e-41, 1e-45])
def test_mxfp4_near_the_end_of_float32(largest: float) -> None:
    values = (np.linspace(-1, 1, 64) * largest).astype(np.float32).reshape(1, 64)
    found = TYPES["MXFP4"].dequantize(quantize_rows("MXFP4", values).reshape(-1), (1, 64))
    assert np.abs(found - values).max() <= max(largest / 4, 2.0**-129)
    assert np.array_equal(
        quantize_rows("MXFP4", values).reshape(-1), TYPES["MXFP4"].quantize(values)
    )


@pytest.mark.parametrize("name", IN_BLOCKS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-40])
def test_odd_values_end_in_bytes(name: str, value: float) -> None:
    rows = np.ones((2, 512), np.float32)
    rows[0, 7] = rows[1, 40:] = value
    for importance in (None, np.ones(512, np.float32), np.zeros(512, np.float32)):
        assert quantize_rows(name, rows, importance).dtype == np.uint8


def test_what_cannot_be_written() -> None:
    with pytest.raises(KeyError):
        quantize_rows("I2_S", np.zeros((1, 256), np.float32))
    with pytest.raises(ValueError, match="blocks of 256"):
        quantize_rows("Q4_K", np.zeros((1, 128), np.float32))
    with pytest.raises(ValueError, match="importance"):
        quantize_rows("Q4_K", np.zeros((1, 256), np.float32), np.zeros(128, np.float32))
    assert quantize_rows("Q4_K", np.zeros((0, 256), np.float32)).shape == (0, 144)


@pytest.mark.full
def test_plain_python_writes_the_same_bytes() -> None:
    names = ("Q2_K", "Q3_K", "Q4_K", "IQ4_XS", "MXFP4", "Q8_0", "Q5_1")
    code = f"""
import numpy as np
from tests.goldens.ggml_blocks import difficult_rows
from trinity_kernels.quantizers import quantize_rows
rows, importance = difficult_rows()
for name in {names!r}:
    for given in (None, importance[:256]):
        print(name, quantize_rows(name, rows[3:5, :256].copy(), given).tobytes().hex())
"""
    assert run_python(code, NUMBA_DISABLE_JIT="1") == run_python(code)
