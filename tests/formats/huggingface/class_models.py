"""Deterministic small models of transformers' classes, written as directories.

Names and shapes of tensors follow from the family's table, and weights are drawn from the names.
tests/data stores only the logits and greedy tokens, which ``tests/goldens/class_goldens.py``
computes with transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.models.make_directory import byte_tokenizer
from tests.formats.huggingface.class_configs import CONFIGS
from tests.formats.huggingface.class_references import PUBLISHED
from tests.formats.huggingface.drawn import drawn_tensor
from tests.formats.raw_safetensors import write_safetensors
from tests.fuzzing.hf_families import stored_tensors

PROMPT = [(5 * i * i + 11 * i + 7) % 256 for i in range(20)]
TOKENS = 24  # greedy ones after the prompt


def _published(tensor: str, config: dict[str, Any]) -> str:
    for own, published in PUBLISHED.get(config["model_type"], {}).items():
        if tensor.startswith(own):
            return published + tensor.removeprefix(own)
    return tensor


def write(name: str, folder: Path, **changes: object) -> Path:
    """Write a model's directory, with changes of its configuration; draw tensors from names."""
    folder.mkdir(parents=True)
    config = CONFIGS[name] | changes
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), "utf-8")
    tensors = {
        _published(tensor, config): drawn_tensor(f"{name} {tensor}", shape)
        for tensor, shape, _ in stored_tensors(config)
    }
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def golden(name: str) -> tuple[NDArray[np.float32], list[int]]:
    """Return transformers' logits after each token of PROMPT, and the greedy tokens after it."""
    with np.load(Path(__file__).parents[2] / "data" / "classes" / f"{name}.npz") as found:
        return found["logits"], found["greedy"].tolist()
