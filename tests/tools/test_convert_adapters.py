"""Adapters of PEFT and mlx-lm become the files of llama.cpp's converter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.models.test_adapters import ADAPTERS, OTHER_AS_GGUF, base_of, golden_of
from trinity.errors import InputError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.tools.convert import convert_adapter

CONVERTED = [(base, name) for base, name in ADAPTERS]


@pytest.mark.parametrize(("base", "name"), CONVERTED)
def test_tensors_and_keys(base: str, name: str, shared_data: Path, tmp_path: Path) -> None:
    folder, model = shared_data / "adapters" / base / name, base_of(shared_data, base)
    source = folder / ("mlx" if (folder / "mlx").exists() else "peft")
    made = convert_adapter(source, tmp_path / "adapter.gguf", model)
    golden = golden_of(folder)
    with trinity.load(model, kv_type="f32", lora=[made.path]) as loaded:
        found = loaded.logits(golden["prompt_ids"])
    assert np.abs(found - np.load(folder / "logits_1.npy")).max() < 1e-3
    if not (folder / "adapter.gguf").exists() or name in OTHER_AS_GGUF:
        return
    with GGUFProvider(made.path) as ours, GGUFProvider(folder / "adapter.gguf") as theirs:
        assert {*ours.tensor_names()} == {*theirs.tensor_names()}
        for tensor in map(theirs.tensor, theirs.tensor_names()):
            own = ours.tensor(tensor.name)
            assert (own.type, own.shape) == (tensor.type, tensor.shape)
            assert own.data.tobytes() == tensor.data.tobytes()
        left = {"general.name", "general.quantization_version"}
        assert {**ours.metadata, **dict.fromkeys(left, 0)} == {
            **theirs.metadata,
            **dict.fromkeys(left, 0),
        }


def test_scales_that_the_format_lacks_are_noted(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "adapters" / "qwen3" / "pattern_r4" / "peft"
    path = tmp_path / "adapter.gguf"
    made = convert_adapter(folder, path, base_of(shared_data, "qwen3"))
    assert "pairs differs from that of alpha" in made.notes[0]
    with pytest.raises(InputError, match="exists"):
        convert_adapter(folder, path, base_of(shared_data, "qwen3"))
    convert_adapter(folder, path, base_of(shared_data, "qwen3"), overwrite=True)


def test_refused_adapters_leave_no_file(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "adapters" / "qwen3" / "dora_r4" / "peft"
    with pytest.raises(UnsupportedError, match="DoRA"):
        convert_adapter(folder, tmp_path / "adapter.gguf", base_of(shared_data, "qwen3"))
    assert not [*tmp_path.iterdir()]
