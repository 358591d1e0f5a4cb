"""Write tests/data/classes.npz and routed.npz: what transformers computes of small models.

    pip install torch transformers numpy numba
    python tests/goldens/class_goldens.py

The tests do not need torch: they draw the same models (tests/formats/huggingface/class_models.py
and routed_models.py).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.formats.huggingface import class_models, routed_models  # noqa: E402

FILES = {"classes.npz": class_models, "routed.npz": routed_models}


@torch.no_grad()
def goldens(models: ModuleType) -> dict[str, Any]:
    """Return the logits of each model's prompt by its name, and the greedy tokens after it."""
    arrays = {}
    for name in models.CONFIGS:
        with tempfile.TemporaryDirectory() as temporary:
            model, loading = AutoModelForCausalLM.from_pretrained(
                models.write(name, Path(temporary) / name),
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
            )
        assert not loading["missing_keys"], (name, loading)
        assert not loading["mismatched_keys"], (name, loading)
        model.eval()
        tokens = list(models.PROMPT)
        arrays[name] = model(torch.tensor([tokens])).logits[0].numpy()
        for _ in range(models.TOKENS):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        arrays[f"{name} greedy"] = np.array(tokens[len(models.PROMPT) :])
    return arrays


if __name__ == "__main__":
    for file, models in FILES.items():
        np.savez_compressed(ROOT / "tests" / "data" / file, **goldens(models))
