"""Files of llama.cpp's converter that differ from those of ``convert``: the same logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.formats.huggingface.class_models import PROMPT, golden, write
from tests.models.family_models import Tensors
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.tools.convert import convert

LARGEST_DIFFERENCE = 1e-3


def _file_of(tmp_path: Path) -> tuple[dict[str, Any], Tensors]:
    convert(write("rwkv6", tmp_path / "model"), tmp_path / "whole.gguf", outtype="f32")
    with GGUFProvider(tmp_path / "whole.gguf") as provider:
        names = provider.tensor_names()
        return dict(provider.metadata), {name: _values(provider, name) for name in names}


def _values(provider: GGUFProvider, name: str) -> Any:
    found = provider.tensor(name)
    return np.array(found.data).view(np.float32).reshape(found.shape)


def _weight_of_each_mixture(metadata: dict[str, Any], tensors: Tensors) -> None:
    """The converter of 2024."""
    for name in [name for name in tensors if "time_mix_lerp_fused" in name]:
        fused = tensors.pop(name).reshape(5, -1)
        for letter, row in zip("wkvrg", fused, strict=True):
            tensors[name.replace("fused", letter)] = row.copy()


def _halved(metadata: dict[str, Any], tensors: Tensors) -> None:
    """The stream is halved after every two layers, and what is added to it."""
    metadata["rwkv6.rescale_every_n_layers"] = 2
    for name, values in tensors.items():
        if name.endswith(("time_mix_output.weight", "channel_mix_value.weight")):
            tensors[name] = values / 2 ** (int(name.split(".")[1]) // 2)


@pytest.mark.parametrize("change", [_weight_of_each_mixture, _halved])
def test_logits(change: Any, tmp_path: Path) -> None:
    metadata, tensors = _file_of(tmp_path)
    before = {name: values.copy() for name, values in tensors.items()}
    change(metadata, tensors)
    assert any(name not in before or (before[name] != tensors[name]).any() for name in tensors)
    with GGUFWriter(tmp_path / "model.gguf") as writer:
        for key, value in metadata.items():
            writer.add(key, value, type="string" if key.endswith("merges") else None)
        for name, values in tensors.items():
            writer.add_tensor(name, values.shape, "F32", np.ascontiguousarray(values))
    with trinity.load(tmp_path / "model.gguf", kv_type="f32") as model:
        found = model.logits(PROMPT)
    assert np.abs(found - golden("rwkv6")[0]).max() < LARGEST_DIFFERENCE
