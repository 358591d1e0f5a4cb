"""`verify`: checksums, scales of every type, and codes that no quantizer writes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.reference import random_weights
from trinity.formats.gguf_types import is_type_of_gguf
from trinity.formats.gguf_writer import GGUFWriter
from trinity.providers import open_weights
from trinity.tools.verify import Verification, verify
from trinity_kernels.quants import TYPES

NOT_WRITTEN = ("I2_S_ARM", "Q8_1", "Q8_K", "Q2_0_G128")
FILES = [t for t in TYPES.values() if is_type_of_gguf(t.name) and t.name not in NOT_WRITTEN]
WITH_SCALES = [t for t in FILES if any(t.block[name].kind == "f" for name in t.block.names or ())]


def sound(name: str, rows: int = 8) -> NDArray[np.uint8]:
    """A tensor (rows, 3 blocks) in which nothing is wrong."""
    quant = TYPES[name]
    shape = (rows, 3 * quant.block_size)
    if quant.ternary:
        rng = np.random.default_rng(1)
        return quant.quantize(rng.integers(-1, 2, shape).astype(np.float32))
    if quant.encode_blocks and name not in ("Q1_0",):
        return quant.quantize(np.random.default_rng(1).normal(size=shape).astype(np.float32))
    return random_weights(np.random.default_rng(1), name, *shape).reshape(-1)


def written(path: Path, name: str, data: NDArray[np.uint8], rows: int = 8) -> Verification:
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "llama")
        writer.add_tensor("a.weight", (rows, 3 * TYPES[name].block_size), name, data)
    return verify(open_weights(path))


@pytest.mark.parametrize("name", [t.name for t in FILES])
def test_sound_tensors_have_no_finding(name: str, tmp_path: Path) -> None:
    data = sound(name)
    found = written(tmp_path / "x.gguf", name, data)
    assert found.findings == []
    assert found.tensors[0].sha256 == hashlib.sha256(data.tobytes()).hexdigest()


@pytest.mark.parametrize("name", [t.name for t in WITH_SCALES])
@pytest.mark.parametrize("value", [np.nan, np.inf, 5000.0])
def test_scales_are_checked_where_they_stand(name: str, value: float, tmp_path: Path) -> None:
    quant, data = TYPES[name], sound(name).copy()
    field = next(f for f in quant.block.names or () if quant.block[f].kind == "f")
    data.view(quant.block)[field][[7, 20]] = value
    found = written(tmp_path / "x.gguf", name, data)
    if quant.block_size == 1 and value == 5000:
        assert found.findings == []
        return
    (finding,) = found.findings
    assert (finding.tensor, finding.count, finding.block) == ("a.weight", 2, 7)
    assert finding.row == 7 // 3
    assert str(value).rstrip("0").rstrip(".") in str(finding)


@pytest.mark.parametrize(
    ("name", "field", "byte"),
    [
        ("I2_S", "qs", 0b00110000), ("TQ2_0", "qs", 0b00001100), ("TQ1_0", "qs", 1),
        ("TQ1_0", "qh", 1), ("MXFP4", "e", 255), ("MXFP4", "e", 200), ("NVFP4", "scales", 0x7F),
    ],
)  # fmt: skip
def test_codes_that_no_quantizer_writes(name: str, field: str, byte: int, tmp_path: Path) -> None:
    quant, data = TYPES[name], sound(name).copy()
    blocks = data[: 24 * quant.type_size].view(quant.block)
    cell = blocks[field][10:11]
    cell.reshape(-1)[0:1] = byte
    (finding,) = written(tmp_path / "x.gguf", name, data).findings
    assert (finding.count, finding.block, finding.row) == (1, 10, 3)
    assert quant.unused
    assert finding.found == quant.unused.what


def test_bfloat16_values(tmp_path: Path) -> None:
    data = sound("BF16").view(np.uint16).copy()
    data[5] = 0xFF80
    (finding,) = written(tmp_path / "x.gguf", "BF16", data.view(np.uint8)).findings
    assert (finding.row, finding.found) == (1, "the value -inf")


@pytest.mark.parametrize(("scale", "count"), [(np.nan, 1), (-np.inf, 1), (-5000, 1), (1000, 0)])
def test_the_scale_of_iq1_m_in_four_parts(scale: float, count: int, tmp_path: Path) -> None:
    data = sound("IQ1_M").copy()
    words = data.view(TYPES["IQ1_M"].block)["scales"]
    bits = int(np.float16(scale).view(np.uint16))
    words[5] = words[5] & 0xFFF | [bits << 12 >> 4 * i & 0xF000 for i in range(4)]
    found = written(tmp_path / "x.gguf", "IQ1_M", data).findings
    assert [(f.count, f.block) for f in found] == [(1, 5)] * count


@pytest.mark.parametrize("scale", [0.0, np.nan, 1e9])
def test_the_scale_of_a_whole_tensor(scale: float, tmp_path: Path) -> None:
    data = sound("I2_S").copy()
    data[-32:-28] = np.array([scale], "<f4").view(np.uint8)
    (finding,) = written(tmp_path / "x.gguf", "I2_S", data).findings
    assert "scale" in finding.found


def test_the_whole_sum_sees_names_and_order(tmp_path: Path) -> None:
    data = np.zeros(64, np.float32)
    sums = set()
    for number, names in enumerate((("a", "b"), ("b", "a"), ("a", "c"))):
        path = tmp_path / f"{number}.gguf"
        with GGUFWriter(path) as writer:
            writer.add("general.architecture", "llama")
            for name in names:
                writer.add_tensor(name, (2, 32), "F32", data)
        found = verify(open_weights(path))
        sums.add(found.sha256)
        assert found.notes == [f"{names[1]} has the same bytes as {names[0]}"]
    assert len(sums) == 3
