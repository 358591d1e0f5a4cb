"""Write tests/data/classes.npz: transformers' answers of one small model of each class.

    pip install torch transformers numpy numba
    python tests/goldens/class_goldens.py

The tests need no torch: they draw the same models (tests/formats/huggingface/class_models.py).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.formats.huggingface.class_models import CONFIGS, PROMPT, TOKENS, write  # noqa: E402


@torch.no_grad()
def main() -> None:
    found = {}
    for name in CONFIGS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = write(name, Path(temporary) / name)
            model, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
            )
        assert not any(loading.values()), (name, loading)  # each tensor has its place
        model.eval()
        tokens = list(PROMPT)
        found[name] = model(torch.tensor([tokens])).logits[0].numpy()
        for _ in range(TOKENS):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        found[f"{name} greedy"] = np.array(tokens[len(PROMPT) :])
    np.savez_compressed(ROOT / "tests" / "data" / "classes.npz", **found)


if __name__ == "__main__":
    main()
