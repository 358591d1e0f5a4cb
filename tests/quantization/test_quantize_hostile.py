"""Quantizing damaged files gives a readable file, or a TrinityError and no file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.tiny_models import write_tiny_model
from trinity.errors import TrinityError
from trinity.formats import GGUFProvider
from trinity.quantization import quantize


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("arch", "given", "wanted"),
    [
        ("llama", "F16", "Q4_0"),
        ("bitnet-b1.58", "I2_S", "TQ2_0"),
        ("bitnet-b1.58", "TQ1_0", "I2_S"),
    ],
)
def test_bytes_replaced(arch: str, given: str, wanted: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{given}{seed}")
    source, out = tmp_path / "source.gguf", tmp_path / "out" / "out.gguf"
    out.parent.mkdir()
    write_tiny_model(source, arch=arch, type=given, num_layers=1, vocab="none", hidden_size=256)
    whole = source.read_bytes()
    with GGUFProvider(source) as model:
        first = model.tensor(model.tensor_names()[0])
        header = whole.index(bytes(first.data[:64]))
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        # Mostly where the file says what it is, at times in the weights and their scales.
        for _ in range(rng.randint(1, 3)):
            end = header if rng.random() < 0.8 else len(data)
            data[rng.randrange(end)] = rng.choice((0, 1, 2, 31, 32, 127, 128, 255))
        source.write_bytes(
            data[: rng.choice((len(data), len(data), rng.randrange(len(data)))) or 1]
        )
        try:
            quantize(source, out, wanted)
        except TrinityError:
            refused += 1
            assert not out.exists()
        else:
            GGUFProvider(out).close()
            out.unlink()
        assert os.listdir(out.parent) == []
    assert 5 < refused < 60
