"""The table of cosines and sines that a model's positions rotate by."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig


def _yarn_correction(config: ModelConfig, rotations: float) -> float:
    """The dimension at which ``rotations`` full turns fit the original context."""
    n, base = config.rope_dim, config.rope_theta
    original = config.rope_scaling.original_context_length or config.context_length
    return n * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))


def rope_table(
    config: ModelConfig, positions: int, factors: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Shapes: (positions, rope_dim): rope_dim / 2 cosines, then as many sines.

    ``factors`` (rope_dim / 2) divides the frequencies (llama3's ``rope_freqs.weight``).
    Source: llama.cpp's rope_yarn and ggml_rope_yarn_corr_dims; the YaRN paper, section 3.
    """
    scaling = config.rope_scaling
    half = config.rope_dim // 2
    frequencies = config.rope_theta ** (-2.0 * np.arange(half) / config.rope_dim)
    if factors is not None:
        frequencies = frequencies / factors.astype(np.float64)
    magnitude = scaling.attn_factor
    if scaling.type == "linear":
        frequencies = frequencies / scaling.factor
    elif scaling.type == "yarn":
        low = max(0.0, math.floor(_yarn_correction(config, scaling.yarn_beta_fast)))
        high = min(
            config.rope_dim - 1.0, math.ceil(_yarn_correction(config, scaling.yarn_beta_slow))
        )
        ramp = 1 - np.clip((np.arange(half) - low) / max(0.001, high - low), 0, 1)
        mix = ramp * scaling.yarn_ext_factor
        frequencies = frequencies / scaling.factor * (1 - mix) + frequencies * mix
        magnitude *= 1 + 0.1 * math.log(scaling.factor)
    angles = np.arange(positions)[:, None] * frequencies
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * magnitude
    return np.ascontiguousarray(table, np.float32)
