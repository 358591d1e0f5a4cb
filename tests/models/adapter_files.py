"""Writes small adapters of a checkpoint's modules, and computes the adapted weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.formats.raw_safetensors import write_safetensors

Arrays = dict[str, NDArray[Any]]
RANK, ALPHA = 3, 5.0
EMBEDDINGS = ("embed_tokens.weight", "embed_tokens_per_layer.weight", "backbone.embeddings.weight")


def peft_directory(folder: Path, tensors: Mapping[str, NDArray[Any]], **config: object) -> Path:
    """Write PEFT's files; ``tensors`` are named without "base_model.model."."""
    folder.mkdir(parents=True)
    values = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, **config}
    (folder / "adapter_config.json").write_text(json.dumps(values), "utf-8")
    named = {f"base_model.model.{name}": array for name, array in tensors.items()}
    write_safetensors(folder / "adapter_model.safetensors", named)
    return folder


def mlx_directory(folder: Path, tensors: Mapping[str, NDArray[Any]], **config: object) -> Path:
    """Write mlx-lm's files."""
    folder.mkdir(parents=True)
    parameters = {"rank": RANK, "scale": ALPHA / RANK}
    values = {"fine_tune_type": "lora", "lora_parameters": parameters, **config}
    (folder / "adapter_config.json").write_text(json.dumps(values), "utf-8")
    write_safetensors(folder / "adapters.safetensors", tensors)
    return folder


def random_pairs(arrays: Arrays, seed: int) -> tuple[Arrays, Arrays, Arrays]:
    """A pair for every matrix of a checkpoint: as PEFT and mlx-lm name them; merged weights.

    Shapes: matrices (out, in), embeddings (tokens, width); the experts' parameters
    (experts, out, in), whichever way the model's class has them.
    """
    rng = np.random.default_rng(seed)
    peft, mlx, merged = Arrays(), Arrays(), dict(arrays)

    def pair(out: int, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
        a, b = rng.standard_normal((RANK, width)), rng.standard_normal((out, RANK))
        return (a / np.sqrt(width)).astype("f4"), (0.2 * b).astype("f4")

    for name, weight in arrays.items():
        module = name.removesuffix(".weight")
        if weight.ndim != 2 or module == name:
            continue
        if name.endswith(EMBEDDINGS):
            a, b = pair(weight.shape[1], weight.shape[0])
            merged[name] = weight + ALPHA / RANK * (b @ a).T
            peft |= {f"{module}.lora_embedding_A": a, f"{module}.lora_embedding_B": b}
            mlx |= {f"{module}.lora_a": a.T.copy(), f"{module}.lora_b": b.T.copy()}
            continue
        a, b = pair(*weight.shape)
        merged[name] = weight + ALPHA / RANK * (b @ a)
        peft |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
        mlx |= {f"{module}.lora_a": a.T.copy(), f"{module}.lora_b": b.T.copy()}
    return peft, _with_switches(mlx), merged


def add_experts(arrays: Arrays, merged: Arrays, turned: bool, seed: int) -> Arrays:
    """Add PEFT's pairs of the experts' parameters of one module. ``turned``: (experts, in, out)."""
    rng = np.random.default_rng(seed)
    peft = Arrays()
    for name, whole in arrays.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        count, out, width = whole.swapaxes(1, 2).shape if turned else whole.shape
        a = (rng.standard_normal((count, RANK, width)) / np.sqrt(width)).astype("f4")
        b = (0.2 * rng.standard_normal((count, out, RANK))).astype("f4")
        delta = ALPHA / RANK * (b @ a)
        merged[name] = whole + (delta.swapaxes(1, 2) if turned else delta)
        module = name.rpartition(".")[0]
        wrapper = f"{module}.base_layer" if name.endswith("gate_up_proj") else module
        peft[f"{wrapper}.lora_A.weight"] = a.reshape(-1, width)
        # Columns: the first of all experts, then the second.
        peft[f"{wrapper}.lora_B.weight"] = b.transpose(1, 2, 0).reshape(out, -1).copy()
    return peft


_SWITCHES = {
    "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj",
    "gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj",
}  # fmt: skip


def _with_switches(mlx: Arrays) -> Arrays:
    """Join experts' matrices as mlx-lm does: (experts, r, in) and (experts, out, r)."""
    found, experts = Arrays(), dict[str, list[NDArray[Any]]]()
    for name, array in mlx.items():
        before, between, behind = name.partition(".experts.")
        if not between:
            found[name] = array
            continue
        _, module, half = behind.split(".")
        switch = f"{before}.switch_mlp.{_SWITCHES[module]}.{half}"
        experts.setdefault(switch, []).append(array.T)
    return found | {name: np.stack(parts) for name, parts in experts.items()}
