"""Rotary options whose logits llama.cpp gave, see tests/goldens/rope_goldens.py."""

from __future__ import annotations

from typing import Any

TOKENS = [1, 403, 407, 261, 378, 432, 13, 300, 301, 302, 303, 304, *range(310, 350)]
LENGTH = 128  # the context that the model was trained with
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "base": {"rope_freq_base": 5e5},
    "linear": {"rope_scaling": "linear", "rope_scale": 4.0},
    "scale alone": {"rope_freq_scale": 0.5},
    "none": {"rope_scaling": "none", "rope_scale": 4.0},
    "yarn": {"rope_scaling": "yarn", "rope_scale": 4.0},
    "yarn of a shorter context": {
        "rope_scaling": "yarn", "rope_freq_scale": 0.125, "yarn_orig_ctx": 32,
    },
    "yarn with betas": {
        "rope_scaling": "yarn", "rope_scale": 8.0, "yarn_beta_fast": 8.0, "yarn_beta_slow": 2.0,
        "rope_freq_base": 2e4,
    },
    "yarn in part": {"rope_scaling": "yarn", "rope_scale": 4.0, "yarn_ext_factor": 0.5,
                     "yarn_attn_factor": 2.0},
    "yarn without extrapolation": {
        "rope_scaling": "yarn", "rope_scale": 4.0, "yarn_ext_factor": 0.0, "yarn_attn_factor": 1.2,
    },
    "extrapolation with linear scaling": {
        "rope_scaling": "linear", "rope_scale": 4.0, "yarn_ext_factor": 1.0,
    },
    "attention factor": {"yarn_attn_factor": 0.9},
    "shrunk": {"rope_scaling": "yarn", "rope_scale": 0.5},
}  # fmt: skip
# Keys of the file, as llama.cpp writes them, and as a dict.
OVERRIDES: dict[str, tuple[str, dict[str, Any]]] = {
    "override base": ("llama.rope.freq_base=float:500", {"llama.rope.freq_base": 500.0}),
    "override scaling": (
        "llama.rope.scaling.type=str:linear,llama.rope.scaling.factor=float:3",
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 3.0},
    ),
    "override epsilon": (
        "llama.attention.layer_norm_rms_epsilon=float:0.1",
        {"llama.attention.layer_norm_rms_epsilon": 0.1},
    ),
}
