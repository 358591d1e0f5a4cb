"""Write tests/data/classes/NAME.npz of models whose class transformers lacks, with llama.cpp.

    pip install llama-cpp-python
    python tests/goldens/llama_cpp_goldens.py NAME MODEL.gguf

MODEL.gguf is the model NAME of tests/formats/huggingface/class_models.py, converted in float32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PROMPT = [(5 * i * i + 11 * i + 7) % 256 for i in range(20)]
TOKENS = 24
FLOAT32 = 0  # ggml's type of the KV cache


def main() -> None:
    """Write the logits of the prompt, and the greedy tokens after it."""
    name, path = sys.argv[1:]
    model = llama_cpp.Llama(
        path, n_ctx=64, logits_all=True, verbose=False, type_k=FLOAT32, type_v=FLOAT32,
        flash_attn=False,
    )  # fmt: skip
    tokens = list(PROMPT)
    for _ in range(TOKENS):
        model.reset()
        model.eval(tokens)
        tokens.append(int(model.scores[len(tokens) - 1].argmax()))
    np.savez_compressed(
        ROOT / "tests" / "data" / "classes" / f"{name}.npz",
        logits=np.array(model.scores[: len(PROMPT)], np.float32),
        greedy=np.array(tokens[len(PROMPT) :]),
    )


if __name__ == "__main__":
    main()
