"""The table of cosines and sines that a model's positions rotate by."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig

_STEP_VALUES = 1 << 20  # of a usual model, 8,192 positions


def _yarn_correction(config: ModelConfig, rotations: float) -> float:
    """The dimension at which ``rotations`` full turns fit the original context."""
    n, base = config.rope_dim, config.rope_theta
    original = config.rope_scaling.original_context_length or config.context_length
    return n * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))


class RopeTable:
    """Cosines and sines for ``positions`` positions, made when a position is first reached.

    ``values`` has shape (positions, rope_dim): rope_dim / 2 cosines, then as many sines. Memory
    that was never written is none, so a table for a long context costs what is used of it.
    ``factors`` (rope_dim / 2) divides the frequencies (llama3's ``rope_freqs.weight``).
    Source: llama.cpp's rope_yarn and ggml_rope_yarn_corr_dims; the YaRN paper, section 3.
    """

    def __init__(
        self, config: ModelConfig, positions: int, factors: NDArray[np.float32] | None
    ) -> None:
        self._frequencies, self._magnitude = _frequencies(config, factors)
        self._step = max(1, _STEP_VALUES // config.rope_dim)
        self._made = 0
        self.values = np.empty((positions, config.rope_dim), np.float32)

    def reach(self, positions: int) -> None:
        """Make sure of the first ``positions`` rows."""
        while self._made < positions:
            end = min(self._made + self._step, len(self.values))
            angles = np.arange(self._made, end)[:, None] * self._frequencies
            rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * self._magnitude
            self.values[self._made : end] = rows
            self._made = end


def _frequencies(
    config: ModelConfig, factors: NDArray[np.float32] | None
) -> tuple[NDArray[np.float64], float]:
    """Angle per position of each pair of dimensions (rope_dim / 2), and what both are times."""
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
    return frequencies, magnitude
