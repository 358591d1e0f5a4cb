"""Write tests/data/classes/NAME.npz and routed.npz: what transformers computes of small models.

    pip install torch transformers numpy numba
    python tests/goldens/class_goldens.py [NAME ...]

NAME is a model of class_models.py; without one, all models of both files are computed. The tests do
not need torch: they draw the same models (tests/formats/huggingface/class_models.py and
routed_models.py).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.formats.huggingface import class_models, routed_models  # noqa: E402
from tests.formats.huggingface.class_configs import REFERENCES  # noqa: E402

DATA = ROOT / "tests" / "data"
OTHER_NETWORKS = ("model.visual.", "model.vision_")


@torch.no_grad()
def golden(models: ModuleType, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of a model's prompt, and the greedy tokens after it."""
    config = models.CONFIGS[name] | REFERENCES.get(name, {})
    model_class = getattr(transformers, config["architectures"][0])
    with tempfile.TemporaryDirectory() as temporary:
        folder = models.write(name, Path(temporary) / name)
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        model, loading = model_class.from_pretrained(
            folder,
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
    for name in sys.argv[1:] or class_models.CONFIGS:
        logits, greedy = golden(class_models, name)
        np.savez_compressed(DATA / "classes" / f"{name}.npz", logits=logits, greedy=greedy)
    if not sys.argv[1:]:
        write_routed()


if __name__ == "__main__":
    main()
