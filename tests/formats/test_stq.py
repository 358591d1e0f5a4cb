"""STQ1_0: values by the definition, ids by size, and a model that is stored in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.models.family_models import vocab_size, vocabulary, write_family_model
from trinity.errors import FormatError
from trinity.formats.configuration import config_from_metadata
from trinity.formats.gguf_types import Extent, decide_types
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.provider import Tensor
from trinity.formats.stq import to_pq2_0
from trinity.models import ARCHITECTURES
from trinity.models.decoder import Decoder
from trinity_kernels.isa import available_levels

TABLE = [
    0xA9, 0x89, 0x29, 0x09, 0xA6, 0x86, 0x26, 0x06, 0x9A, 0x92, 0x1A, 0x12, 0x6A, 0x62, 0x4A, 0x42,
    0x01, 0x21, 0x81, 0xA1, 0x04, 0x24, 0x84, 0xA4, 0x10, 0x18, 0x90, 0x98, 0x40, 0x48, 0x60, 0x68,
]  # fmt: skip
METADATA: dict[str, object] = {
    "general.architecture": "hunyuan-dense",
    "hunyuan-dense.embedding_length": 256, "hunyuan-dense.feed_forward_length": 512,
    "hunyuan-dense.block_count": 2, "hunyuan-dense.attention.head_count": 4,
    "hunyuan-dense.attention.head_count_kv": 2, "hunyuan-dense.context_length": 64,
    "hunyuan-dense.attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
PROMPT = [(11 * i * i + 7 * i + 3) % 250 for i in range(12)]


def blocks(count: int, seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 256, (count, 42), np.uint8)
    drawn[:, 40:] = (rng.uniform(0.02, 0.1, count).astype("<f2")).view(np.uint8).reshape(-1, 2)
    return drawn


def values_of(block: NDArray[np.uint8]) -> list[float]:
    """The weights of one block, each by the definition."""
    d = float(block[40:].view("<f2")[0])
    found = []
    for w in range(256):
        group, lane = w // 64 * 16 + w % 16, w % 64 // 16
        code = int(block[group // 2]) >> (4 * (group % 2)) & 15
        sign = int(block[32 + group // 8]) >> (group % 8) & 1
        found.append(((TABLE[sign << 4 | code] >> (2 * lane) & 3) - 1) * d)
    return found


def test_values_are_those_of_the_definition() -> None:
    data = blocks(6, 1)
    found = to_pq2_0(Tensor("w", (3, 512), "STQ1_0", data.reshape(-1)))
    assert found.type == "PQ2_0"
    expected = np.array([values_of(block) for block in data], np.float32).reshape(3, 512)
    assert np.array_equal(found.dequantize(), expected)
    assert set(np.unique(np.count_nonzero(expected.reshape(6, 4, 4, 16), axis=2))) == {3}


@pytest.mark.parametrize("id_", [42, 43])
def test_the_size_decides(id_: int) -> None:
    (layout,) = decide_types("x", [Extent("t", id_, (512, 512), 512 * 84)], 32)
    assert layout == ("STQ1_0", 512 * 84)


def test_another_size_is_refused() -> None:
    with pytest.raises(FormatError, match="STQ1_0 takes 43008 bytes"):
        decide_types("x", [Extent("t", 43, (512, 512), 512 * 80)], 32)


@pytest.mark.parametrize("level", available_levels())
def test_a_model_gives_the_logits_of_its_values(tmp_path: Path, level: str) -> None:
    config = config_from_metadata(METADATA, {}, source="", num_tokens=vocab_size())
    shapes = Decoder(ARCHITECTURES["hunyuan-dense"], config, ()).tensors()
    rng, plain = np.random.default_rng(2), {}
    with GGUFWriter(tmp_path / "stq.gguf") as writer:
        for key, value in (METADATA | vocabulary()).items():
            writer.add(key, value)
        for seed, (name, shape) in enumerate(shapes.items()):
            if len(shape) == 2 and name.startswith("blk."):
                data = blocks(shape[0] * shape[1] // 256, seed).reshape(-1)
                plain[name] = to_pq2_0(Tensor(name, shape, "STQ1_0", data)).dequantize()
                writer.add_tensor(name, shape, "STQ1_0", data)
            else:
                plain[name] = (1 + rng.standard_normal(shape) / 5).astype(np.float32)
                if len(shape) == 2:
                    plain[name] -= 1
                writer.add_tensor(name, shape, "F32", plain[name])
    write_family_model(tmp_path / "plain.gguf", METADATA, plain)
    logits = []
    for name in ("stq", "plain"):
        with trinity.load(tmp_path / f"{name}.gguf", kv_type="f32", isa=level) as model:
            logits.append(model.logits(PROMPT))
    assert np.abs(logits[1]).max() > 1
    assert np.abs(logits[0] - logits[1]).max() < 1e-3
