"""Directories of recurrent families in mlx-lm's format give the same logits.

Source: the ``sanitize`` of mlx-lm's qwen3_next.py, qwen3_5.py, lfm2.py and granitemoehybrid.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.tools.family_directories import Arrays, arrays_of, directory
from trinity.errors import FormatError

NORMS = (
    ".input_layernorm.weight",
    ".post_attention_layernorm.weight",
    "model.norm.weight",
    ".q_norm.weight",
    ".k_norm.weight",
)
LFM2 = {
    "w1.weight": "gate_proj.weight",
    "w2.weight": "down_proj.weight",
    "w3.weight": "up_proj.weight",
}


def as_mlx(folder: str, arrays: Arrays) -> Arrays:
    found = Arrays()
    for name, array in arrays.items():
        if name.endswith(("conv1d.weight", "conv.conv.weight")):
            array = np.moveaxis(array, 2, 1)
        if folder.startswith("qwen") and name.endswith(NORMS):
            array = array + np.float32(1)
        if folder == "lfm2":
            for theirs, here in LFM2.items():
                name = name.replace(theirs, here)
        found["language_model." + name if folder == "qwen3_5" else name] = array.copy()
    return found


@pytest.mark.parametrize("folder", ["qwen3_5", "qwen3_next", "lfm2", "granitehybrid"])
def test_as_mlx_lm_saves_it(folder: str, shared_data: Path, tmp_path: Path) -> None:
    family = shared_data / "architectures" / folder
    made = directory(family, tmp_path, as_mlx(folder, arrays_of(family)))
    prompt = json.loads((family / "golden.json").read_text("utf-8"))["prompt_ids"]
    with trinity.load(family / "hf", context_length=64, kv_type="f32", threads=1) as model:
        expected = model.logits(prompt)
    with trinity.load(made, context_length=64, kv_type="f32", threads=1) as model:
        assert np.abs(model.logits(prompt) - expected).max() < 1e-4


def test_falcon_h1s_is_refused(shared_data: Path, tmp_path: Path) -> None:
    """The file does not tell whether its multipliers are part of the weights."""
    family = shared_data / "architectures" / "falcon_h1"
    made = directory(family, tmp_path, as_mlx("falcon_h1", arrays_of(family)))
    with pytest.raises(FormatError, match="conv1d"):
        trinity.load(made, threads=1)
