"""Options of samplers whose results llama.cpp gave, see tests/goldens/sampler_goldens.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.sampling.sampler_names import DEFAULT_ORDER

VOCAB = 512  # of tests/data/stories260K, whose vocabulary DRY's breakers are searched in
SEED = 42
TOKENS = 200  # tokens of a text
DRAWS = 100_000
# A text that repeats itself, with breakers of stories260K's vocabulary in it.
PROMPT = [1, 403, 407, 261, 378, 432, 13, 300, 301, 302, 303, 304, 300, 301, 302, 303, 403, 407,
          261, 378, 300, 301, 302, 303, 304, 305, 300, 301, 302]  # fmt: skip
_ALL: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
_DRY: dict[str, Any] = {"dry_multiplier": 0.8, "dry_penalty_last_n": 256}

CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "all": _ALL,
    "typical": {**_ALL, "typical_p": 0.6},
    "typical after top_k": {"typical_p": 0.4, "top_k": 60, "top_p": 0.99},
    "top_n_sigma": {**_ALL, "top_n_sigma": 1.0},
    "top_n_sigma and typical": {"top_n_sigma": 2.5, "typical_p": 0.7, "top_k": 50},
    "xtc": {**_ALL, "xtc_probability": 1.0, "xtc_threshold": 0.05},
    "xtc at times": {"xtc_probability": 0.5, "xtc_threshold": 0.02},
    "dynamic temperature": {**_ALL, "dynatemp_range": 0.5},
    "dynamic temperature from zero": {"dynatemp_range": 1.5, "dynatemp_exponent": 2.0},
    "dry": {**_ALL, **_DRY},
    "dry without breakers": {**_DRY, "dry_sequence_breakers": [], "top_k": 20},
    "dry of one token": {**_DRY, "dry_allowed_length": 0, "dry_base": 1.1,
                         "dry_penalty_last_n": 20},
    "dry with long breakers": {**_ALL, **_DRY, "dry_sequence_breakers": ["the", "ed to", "was a"]},
    "dry that grows fast": {**_ALL, **_DRY, "dry_base": 1e6},
    "penalties and dry": {
        **_DRY, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2,
    },
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 2.5},
    "mirostat 1, low": {"mirostat": 1, "mirostat_tau": 1.5, "mirostat_eta": 0.3},
    "mirostat 2": {"mirostat": 2, "temperature": 1.3},
    "mirostat 2, low": {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
    "adaptive_p": {"samplers": [*DEFAULT_ORDER, "adaptive_p"], "adaptive_target": 0.3, "top_k": 30},
    "adaptive_p, slow": {
        **_ALL, "samplers": ["adaptive_p", "top_k"], "top_k": 9, "adaptive_target": 0.05,
        "adaptive_decay": 0.99,
    },
    "adaptive_p, off": {"samplers": ["top_k", "adaptive_p"], "top_k": 9},
    "temperature first": {"samplers": ["temperature", "top_p", "min_p"], "temperature": 1.4},
    "min_p first": {"samplers": ["min_p", "top_k"], "min_p": 0.02, "top_k": 12},
    "backwards": {
        "samplers": list(reversed(DEFAULT_ORDER)), **_DRY, "typical_p": 0.9, "top_n_sigma": 2.0,
        "xtc_probability": 0.3, "xtc_threshold": 0.05, "repetition_penalty": 1.1,
    },
    "twice": {"samplers": ["top_k", "temperature", "top_k", "temperature"], "top_k": 7},
    "none": {"samplers": []},
    "top_k alone": {"samplers": ["top_k"], "top_k": 3},
    "everything": {
        **_DRY, "typical_p": 0.95, "top_n_sigma": 3.0, "xtc_probability": 0.4,
        "xtc_threshold": 0.03, "dynatemp_range": 0.3, "repetition_penalty": 1.1, "top_p": 0.99,
    },
}  # fmt: skip


def logits_of(row: int) -> NDArray[np.float32]:
    """The logits from which token ``row`` of a text is chosen."""
    return np.random.default_rng(row).normal(0, 2.5, VOCAB).astype(np.float32)


def chi_square(found: NDArray[np.integer], expected: NDArray[np.integer]) -> tuple[float, float]:
    """Chi-square of two samples' counts of each token, and the limit of equal distributions.

    The rarest tokens are counted together. Equal distributions exceed the limit with p = 3e-5:
    4 standard deviations, by the Wilson-Hilferty approximation.
    """
    found, expected = found.astype(np.int64), expected.astype(np.int64)
    order = np.argsort(-(found + expected), kind="stable")
    often = order[(found + expected)[order] >= 20]
    rare = order[len(often) :]
    pairs = np.array(
        [
            *zip(found[often], expected[often], strict=True),
            (found[rare].sum(), expected[rare].sum()),
        ]
    )
    pairs = pairs[pairs.sum(1) > 0]
    share = np.sqrt(expected.sum() / found.sum())
    differences = pairs[:, 0] * share - pairs[:, 1] / share
    freedom = len(pairs) - 1
    if not freedom:
        return 0.0, 0.0
    limit = freedom * (1 - 2 / (9 * freedom) + 4 * np.sqrt(2 / (9 * freedom))) ** 3
    return float((differences**2 / pairs.sum(1)).sum()), float(limit)
