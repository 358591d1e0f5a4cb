"""Directories with mlx-lm's names and shapes of tensors give transformers' results.

Source: mlx_lm, models/gpt_oss.py, granitemoe.py, gemma4_text.py, gemma3_text.py: sanitize.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.formats.raw_safetensors import write_safetensors
from tests.tools.family_directories import Arrays, arrays_of, directory
from trinity.formats.safetensors import SafeTensorsFile
from trinity_kernels.isa import available_levels


def of_gpt_oss(arrays: Arrays) -> Arrays:
    """Codes and scales of MXFP4 by rows; gate and up apart, which alternate in transformers'."""
    found = Arrays()
    for name, array in arrays.items():
        own = name.replace("_blocks", ".weight").replace("_scales", ".scales")
        if "_blocks" in name:
            array = array.reshape(*array.shape[:-2], -1).view(np.uint32)
        if name.endswith("gate_up_proj_bias"):
            own = own.replace("gate_up_proj_bias", "gate_up_proj.bias")
            array = array[..., None]
        own = own.replace("down_proj_bias", "down_proj.bias")
        if "gate_up_proj" not in name:
            found[own] = array
            continue
        for first, part in enumerate(("gate", "up")):
            rows = np.ascontiguousarray(array[:, first::2])
            rows = rows[..., 0] if own.endswith(".bias") else rows
            found[own.replace("gate_up", part)] = rows
    return found


def halves(arrays: Arrays, joined: str, apart: str) -> Arrays:
    """Divide ``joined`` by rows into gate and up; each has the name ``apart`` with its word."""
    found = Arrays()
    for name, array in arrays.items():
        if name.endswith(joined):
            for part, rows in zip(("gate", "up"), np.split(array, 2, axis=1), strict=True):
                found[name.removesuffix(joined) + apart.format(part)] = rows
        else:
            found[name] = array
    return found


def of_granite(arrays: Arrays) -> Arrays:
    """Of mixtures."""
    own, down = "moe.switch_mlp.{}_proj.weight", "moe.switch_mlp.down_proj"
    found = halves(arrays, "moe.input_linear.weight", own)
    return {name.replace("moe.output_linear", down): array for name, array in found.items()}


def of_gemma4(arrays: Arrays) -> Arrays:
    """Of mixtures, within a module switch_glu."""
    own, down = "experts.switch_glu.{}_proj.weight", "experts.switch_glu.down_proj.weight"
    found = halves(arrays, "experts.gate_up_proj", own)
    return {name.replace("experts.down_proj", down): array for name, array in found.items()}


RENAMED = {
    "gemma4_moe": (of_gemma4, "ffn_gate_exps"),
    "gpt_oss_mxfp4": (of_gpt_oss, "ffn_gate_exps"),
    "granitemoe": (of_granite, "ffn_up_exps"),
}


def renamed(folder: str, shared_data: Path, parent: Path) -> Path:
    """Return the reference data's directory of a family as mlx-lm writes it."""
    family = shared_data / "architectures" / folder
    arrays = RENAMED[folder][0](arrays_of(family))
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return directory(family, parent, contiguous)


@pytest.mark.few(3)
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("folder", RENAMED)
def test_logits_of_families(folder: str, level: str, shared_data: Path, tmp_path: Path) -> None:
    family, made = shared_data / "architectures" / folder, renamed(folder, shared_data, tmp_path)
    prompt = json.loads((family / "golden.json").read_text("utf-8"))["prompt_ids"]
    with trinity.load(made, isa=level, kv_type="f32", context_length=len(prompt)) as model:
        found = model.logits(prompt)
    np.testing.assert_allclose(found, np.load(family / "logits.npy"), rtol=0, atol=1e-3)


@pytest.mark.parametrize("folder", RENAMED)
def test_experts_are_what_transformers_tensors_are(
    folder: str, shared_data: Path, tmp_path: Path
) -> None:
    """The bits are equal, whether or not gate and up are one tensor."""
    made, part = renamed(folder, shared_data, tmp_path), f"blk.0.{RENAMED[folder][1]}"
    provider = trinity.open_weights(made)
    other = trinity.open_weights(shared_data / "architectures" / folder / "hf")
    stored = [name for name in provider.tensor_names() if name.startswith(part)]
    assert stored
    values = provider.tensor(f"{part}.weight").dequantize()
    names = other.tensor_names()
    if "blk.0.ffn_gate_up_exps.weight" in names:
        whole = other.tensor("blk.0.ffn_gate_up_exps.weight").dequantize()
        expected = whole[:, : whole.shape[1] // 2]
    elif f"{part}.weight" in names:
        expected = other.tensor(f"{part}.weight").dequantize()
    else:
        apart = (f"{part}.{expert}.weight" for expert in range(len(values)))
        expected = np.stack([other.tensor(name).dequantize() for name in apart])
    np.testing.assert_array_equal(values, expected)
    provider.close()
    other.close()


@pytest.mark.parametrize("said", [None, True])
def test_an_output_of_its_own_in_gemma3(
    said: bool | None, shared_data: Path, tmp_path: Path
) -> None:
    """mlx-lm uses it whatever config.json says: reversed rows give reversed logits."""
    source = shared_data / "formats/mlx/gemma3-text-b4g32"
    for path in source.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((source / "config.json").read_text("utf-8"))
    config.pop("tie_word_embeddings", None)
    more = {} if said is None else {"tie_word_embeddings": said}
    (tmp_path / "config.json").write_text(json.dumps(config | more), "utf-8")
    with SafeTensorsFile(source / "model.safetensors") as file:
        tensors = [file.tensor(name) for name in file.names()]
        arrays = {t.name: t.data.reshape(*t.shape, -1).copy() for t in tensors}
        types = {t.name: t.dtype for t in tensors}
    head = {
        name.replace("model.embed_tokens", "lm_head"): array[::-1]
        for name, array in arrays.items()
        if "embed_tokens" in name
    }
    types |= {name: types[name.replace("lm_head", "model.embed_tokens")] for name in head}
    sizes = {"BF16": np.uint16, "F16": np.uint16, "F32": np.float32, "U32": np.uint32}
    whole = {
        name: np.ascontiguousarray(array).view(sizes[types[name]])[..., 0]
        for name, array in (arrays | head).items()
    }
    write_safetensors(tmp_path / "model.safetensors", whole, types)
    prompt = json.loads((source / "golden.json").read_text("utf-8"))["prompt_ids"]
    with trinity.load(tmp_path, kv_type="f32", context_length=len(prompt)) as model:
        found = model.logits(prompt)
    expected = np.load(source / "logits.npy")[:, ::-1]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
