"""Write tests/data/routed.npz: transformers' answers of small models with DeepSeek's experts.

    pip install torch transformers numpy numba
    python tests/goldens/routed_goldens.py

The tests need no torch: they draw the same models (tests/formats/huggingface/routed_models.py).
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

from tests.formats.huggingface.routed_models import CONFIGS, PROMPT, TOKENS, write  # noqa: E402


@torch.no_grad()
def main() -> None:
    found = {}
    for name in CONFIGS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = write(name, Path(temporary) / name)
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            ).eval()
        tokens = list(PROMPT)
        logits = model(torch.tensor([tokens])).logits[0]
        found[name] = logits.numpy()
        for _ in range(TOKENS):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        found[f"{name} greedy"] = np.array(tokens[len(PROMPT) :])
    np.savez_compressed(ROOT / "tests" / "data" / "routed.npz", **found)


if __name__ == "__main__":
    main()
