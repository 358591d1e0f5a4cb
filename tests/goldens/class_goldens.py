"""Write tests/data/classes/NAME.npz and routed.npz: what transformers computes of small models.

    pip install torch transformers numpy numba
    python tests/goldens/class_goldens.py [NAME ...]

NAME is a model of class_models.py; without one, all models of both files are computed, except those
of rwkv_golden.py. The tests do not need torch: they draw the same models
(tests/formats/huggingface/class_models.py and routed_models.py).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.formats.huggingface import class_models, routed_models  # noqa: E402
from tests.formats.huggingface.class_references import REFERENCE_NAMES, REFERENCES  # noqa: E402
from tests.fuzzing import published_classes  # noqa: E402

DATA = ROOT / "tests" / "data"
OTHER_NETWORKS = ("model.visual.", "model.vision_", "model.projector.")


def rename(file: Path, names: dict[str, str], config: dict[str, Any]) -> None:
    """Give tensors the names of the class that transformers reads instead; split q, k and v."""
    renamed: dict[str, torch.Tensor] = {}
    groups, each = config["num_key_value_heads"], config["num_attention_heads"]
    each //= groups
    joined = next((own for own, new in names.items() if new.endswith("q, k and v")), "")
    for given, tensor in load_file(file).items():
        name, columns = given, tensor.shape[1:]
        for own, new in names.items():
            name = name if own == joined else name.replace(own, new)
        if not joined or joined not in name:
            renamed[name] = tensor
            continue
        counts = [each * groups, groups, groups]
        if names[joined].startswith("heads"):
            heads = tensor.reshape(groups, each + 2, -1, *columns)
            parts = heads.split([each, 1, 1], dim=1)
        else:
            parts = tensor.reshape(sum(counts), -1, *columns).split(counts)
        for letter, part in zip("qkv", parts, strict=True):
            whole = name.replace(joined, f"self_attn.{letter}_proj")
            renamed[whole] = part.reshape(-1, *columns).contiguous()
    save_file(renamed, file, {"format": "pt"})


@torch.no_grad()
def golden(models: ModuleType, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of a model's prompt, and the greedy tokens after it."""
    config = models.CONFIGS[name] | REFERENCES.get(name, {})
    if name in REFERENCES:  # not of a class around the language model
        config = {key: value for key, value in config.items() if not key.endswith("_config")}
    class_name = config["architectures"][0]
    model_class = getattr(transformers, class_name, getattr(published_classes, class_name, None))
    with tempfile.TemporaryDirectory() as temporary:
        folder = models.write(name, Path(temporary) / name)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        if name in REFERENCE_NAMES:
            rename(folder / "model.safetensors", REFERENCE_NAMES[name], config)
        model, loading = model_class.from_pretrained(
            folder,
            config=transformers.AutoConfig.from_pretrained(folder),
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
        )
    missing = [key for key in loading["missing_keys"] if not key.startswith(OTHER_NETWORKS)]
    assert not missing, (name, missing)
    assert not loading["mismatched_keys"], (name, loading)
    model.eval()
    tokens = list(models.PROMPT)
    logits = model(torch.tensor([tokens])).logits[0].numpy()
    for _ in range(models.TOKENS):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return logits, np.array(tokens[len(models.PROMPT) :])


def write_routed() -> None:
    """Write the logits of each model's prompt by its name, and the greedy tokens after it."""
    arrays = {}
    for name in routed_models.CONFIGS:
        arrays[name], arrays[f"{name} greedy"] = golden(routed_models, name)
    np.savez_compressed(DATA / "routed.npz", **arrays)


def main() -> None:
    """Write the files of the models that are named, or all."""
    for name in sys.argv[1:] or [name for name in class_models.CONFIGS if "rwkv" not in name]:
        logits, greedy = golden(class_models, name)
        np.savez_compressed(DATA / "classes" / f"{name}.npz", logits=logits, greedy=greedy)
    if not sys.argv[1:]:
        write_routed()


if __name__ == "__main__":
    main()
