"""Write tests/data/samplers.npz: what llama.cpp's samplers leave and choose.

pip install llama-cpp-python
python tests/goldens/sampler_goldens.py
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.goldens.llama_cpp_samplers import Chain, counts, text, vocabulary  # noqa: E402
from tests.runtime.sampler_cases import (  # noqa: E402
    CASES,
    DRAWS,
    PROMPT,
    SEED,
    TOKENS,
    VOCAB,
    logits_of,
)
from trinity.runtime.sampling.sampling_params import SamplingParams  # noqa: E402


def golden(options: dict[str, Any], vocab: Any) -> dict[str, NDArray[Any]]:
    """The candidates after the samplers that change something, a text, and counts of draws."""
    params = asdict(SamplingParams(**options))
    found: dict[str, NDArray[Any]] = {}
    ids, logits = np.arange(VOCAB), logits_of(0)
    for count in range(1, len(params["samplers"]) + 1):
        prefix = {**params, "samplers": params["samplers"][:count], "mirostat": 0}
        chain = Chain(prefix, vocab, VOCAB, SEED, chooses=False)
        chain.accept(PROMPT)
        left = chain.apply(logits_of(0))
        before = ids, logits
        ids = np.array([one.id for one in left.data[: left.size]])
        logits = np.array([one.logit for one in left.data[: left.size]], np.float32)
        chain.close()
        if not np.array_equal(before[0], ids) or not np.array_equal(before[1], logits):
            found[f"ids {count}"], found[f"logits {count}"] = ids.astype(np.int16), logits
    rows = np.stack([logits_of(row) for row in range(TOKENS)])
    tokens = text(params, vocab, rows, PROMPT, SEED, TOKENS)
    drawn = counts(params, vocab, rows[0], PROMPT, SEED, DRAWS)
    return found | {"tokens": np.array(tokens, np.int16), "counts": drawn}


if __name__ == "__main__":
    vocab = vocabulary()
    results = {
        f"{case}: {name}": array
        for case, options in CASES.items()
        for name, array in golden(options, vocab).items()
    }
    np.savez_compressed(ROOT / "tests" / "data" / "samplers.npz", **results)  # type: ignore[arg-type]
