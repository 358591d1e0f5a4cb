"""Ternary files of any family: the same bits on every level, in prefill and decoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.matrix import some
from tests.models import family_models as small
from tests.tiny_models import encoded
from trinity.formats.gguf_writer import GGUFWriter
from trinity.runtime.interface import Rows

KEPT = ("gemma3", "cohere2", "phi2", "granite", "gpt_oss", "deepseek_v3", "qwen2_moe")


def write_ternary_model(path: Path, family: str) -> int:
    """Write the family's small model with I2_S matrices; return their number."""
    count = 0
    with GGUFWriter(path) as writer:
        for key, value in (small.metadata_of(family) | small.vocabulary()).items():
            writer.add(key, value)
        for name, values in small.tensors_of(family).items():
            matrix = name.startswith("blk.") and values.ndim > 1 and "norm" not in name
            if matrix and values.size % 128 == 0:
                codes = np.sign(values) * (np.abs(values) > 0.05)
                rows = (codes * np.float32(0.11)).reshape(-1, values.shape[-1]).astype(np.float32)
                writer.add_tensor(name, values.shape, "I2_S", encoded("I2_S", rows))
                count += 1
            else:
                writer.add_tensor(name, values.shape, "F32", np.ascontiguousarray(values))
    return count


@pytest.mark.few(1)
@pytest.mark.parametrize("family", some(small.FAMILIES, KEPT))
def test_equal_bits(family: str, tmp_path: Path, levels: tuple[str, ...]) -> None:
    path = tmp_path / "model.gguf"
    assert write_ternary_model(path, family) >= 4 * small.FAMILIES[family].layers
    found = {}
    for level in levels:
        for threads in (1, 2):
            with trinity.load(path, kv_type="f32", isa=level, threads=threads) as model:
                found[level, threads, "prompt"] = model.logits(small.PROMPT)
                with model.exclusive() as engine:
                    cache = engine.new_cache()
                    steps = [engine.step([Rows(cache, [token])]) for token in small.PROMPT]
                found[level, threads, "steps"] = np.concatenate(steps)
    (_, first), *others = found.items()
    assert first.std() > 0.1
    for case, logits in others:
        assert np.array_equal(logits, first), case
