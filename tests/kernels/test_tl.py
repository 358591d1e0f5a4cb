"""TL1 and TL2: Microsoft's bytes, and an independent writer for every published shape."""

from __future__ import annotations

import hashlib
import json
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.tl_writer import write_tl
from tests.matrix import some
from trinity_kernels.quants import dequantize
from trinity_kernels.quants.tl import AMBIGUOUS, TILINGS, Tiling, TLError, tl_codes, to_i2_s

PUBLISHED = [
    *((name, shape, tiling) for name, of in TILINGS.items() for shape, tiling in of.items()),
    *(("TL1", shape, tiling) for shape, both in AMBIGUOUS.items() for tiling in both),
]
SMALLEST, SMALLEST_OF_TILING = (
    list({keys(case): case for case in sorted(PUBLISHED, key=itemgetter(1), reverse=True)}.values())
    for keys in (itemgetter(0), itemgetter(0, 2))
)


def matrix(m: int, k: int) -> np.ndarray:
    return np.random.default_rng([m, k]).integers(-1, 2, (m, k), np.int8)


@pytest.mark.full
def test_bytes_of_microsofts_converter(shared_data: Path) -> None:
    entries = json.loads((shared_data / "tl/tl.json").read_text())
    assert len(entries) == 6
    for entry in entries:
        data = np.fromfile(shared_data / "tl" / entry["file"], np.uint8)
        shape = entry["rows_M"], entry["cols_K"]
        seed = int(entry["ternary"].split("(")[1].split(")")[0])
        expected = np.random.default_rng(seed).integers(-1, 2, shape)
        tiling = entry["BM"], entry["BY"], entry["bm"]
        found = tl_codes(entry["type"], data, shape, tiling)
        assert np.array_equal(found.astype(np.int8) - 1, expected), entry["file"]
        assert tiling == TILINGS[entry["type"]].get(shape, tiling)
        # The test's own writer gives the same bytes, which vouches for it below.
        written = write_tl(entry["type"], expected.astype(np.int8), tiling)
        assert np.array_equal(written[: len(data)], data), entry["file"]


@pytest.mark.full
def test_checksums_of_microsofts_converter() -> None:
    """The writer's bytes have the checksums of Microsoft's converter, stored in tests/data."""
    for entry in json.loads((Path(__file__).parents[1] / "data" / "tl.json").read_text()):
        shape = entry["rows_M"], entry["cols_K"]
        seed = int(entry["ternary"].split("(")[1].split(")")[0])
        values = np.random.default_rng(seed).integers(-1, 2, shape)
        tiling = entry["BM"], entry["BY"], entry["bm"]
        written = write_tl(entry["type"], values.astype(np.int8), tiling)[: entry["nbytes"]]
        assert hashlib.sha256(written.tobytes()).hexdigest() == entry["sha256"], entry["file"]
        found = tl_codes(entry["type"], written, shape, tiling)
        assert np.array_equal(found.astype(np.int8) - 1, values), entry["file"]


@pytest.mark.parametrize(("name", "shape", "tiling"), some(PUBLISHED, SMALLEST, SMALLEST_OF_TILING))
def test_published_shapes(name: str, shape: tuple[int, int], tiling: Tiling) -> None:
    expected = matrix(*shape)
    found = tl_codes(name, write_tl(name, expected, tiling), shape, tiling)
    assert np.array_equal(found.astype(np.int8) - 1, expected)


@pytest.mark.parametrize(
    ("name", "shape", "tiling"),
    [
        ("TL1", (64, 128), (32, 32, 32)),
        ("TL1", (64, 96), (64, 16, 16)),
        ("TL2", (64, 320), (32, 144, 32)),
        ("TL2", (96, 288), (32, 96, 32)),
        ("TL2", (32, 256), (32, 288, 32)),
    ],
)
def test_brought_to_i2_s(name: str, shape: tuple[int, int], tiling: Tiling) -> None:
    w = matrix(*shape)
    found = dequantize("I2_S", to_i2_s(name, write_tl(name, w, tiling, 0.75), shape, tiling), shape)
    assert np.array_equal(found, w * np.float32(0.75))


@pytest.mark.parametrize("name", ["TL1", "TL2"])
def test_what_does_not_fit_is_refused(name: str) -> None:
    shape, tiling = (64, 256), (32, 96 if name == "TL2" else 32, 32)
    data = write_tl(name, matrix(*shape), tiling)
    with pytest.raises(TLError, match="do not divide"):
        tl_codes(name, data, shape, (48, tiling[1], 32))
    with pytest.raises(TLError, match="bytes"):
        tl_codes(name, data[: len(data) // 4], shape, tiling)
    data[5] = 0xF0
    with pytest.raises(TLError, match="nibble of 15"):
        tl_codes(name, data, shape, tiling)


def test_any_bytes_end_in_codes_or_an_error() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        name = ("TL1", "TL2")[rng.integers(2)]
        shape = tuple(int(x) for x in rng.integers(0, 5, 2) * 64)
        tiling = tuple(int(x) for x in rng.choice([0, 1, 16, 24, 32, 64, 96, 128], 3))
        data = rng.integers(0, 136, int(rng.integers(0, 20000)), np.uint8)
        try:
            codes = tl_codes(name, data, shape, tiling)  # type: ignore[arg-type]
        except TLError:
            continue
        assert codes.shape == shape
        assert codes.max(initial=0) <= 2
