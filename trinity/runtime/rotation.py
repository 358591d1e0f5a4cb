"""Tables of what depends on positions: cosines and sines to rotate by, temperatures."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Rotation, Temperature

_STEP_VALUES = 1 << 20  # of a usual model, 8,192 positions


class RopeTable:
    """Cosines and sines for ``positions`` positions, made when a position is first reached.

    ``values`` has shape (positions, dim): dim / 2 cosines, then as many sines. Memory that was
    never written is none, so a table for a long context costs what is used of it.
    ``factors`` (dim / 2) divides the frequencies.
    Source: llama.cpp's rope_yarn and ggml_rope_yarn_corr_dims; the YaRN paper, section 3.
    """

    def __init__(
        self, rotation: Rotation, positions: int, factors: NDArray[np.float32] | None
    ) -> None:
        self._frequencies, self._magnitude = _frequencies(rotation, factors)
        self._step = max(1, _STEP_VALUES // rotation.dim)
        self._made = 0
        self.values = np.empty((positions, rotation.dim), np.float32)

    @property
    def address(self) -> int:
        """Where the table begins."""
        return int(self.values.ctypes.data)

    def reach(self, positions: int) -> int:
        """Compute at least the first ``positions`` rows; returns how many there are."""
        while self._made < positions:
            end = min(self._made + self._step, len(self.values))
            angles = np.arange(self._made, end)[:, None] * self._frequencies
            rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * self._magnitude
            self.values[self._made : end] = rows
            self._made = end
        return self._made


class TemperatureTable:
    """What the queries of ``positions`` positions are multiplied by, made as ``RopeTable`` is.

    ``values`` has shape (positions,).
    """

    def __init__(self, temperature: Temperature, positions: int) -> None:
        self._temperature = temperature
        self._made = 0
        self.values = np.empty(positions, np.float32)

    @property
    def address(self) -> int:
        """Where the table begins."""
        return int(self.values.ctypes.data)

    def reach(self, positions: int) -> int:
        """Compute at least the first ``positions`` values; returns how many there are."""
        scale, length = self._temperature.scale, self._temperature.length
        while self._made < positions:
            end = min(self._made + _STEP_VALUES, len(self.values))
            turns = np.arange(self._made, end) // length
            self.values[self._made : end] = 1 + scale * np.log1p(turns)
            self._made = end
        return self._made


def _frequencies(
    rotation: Rotation, factors: NDArray[np.float32] | None
) -> tuple[NDArray[np.float64], float]:
    """Angle per position of each pair of dimensions (dim / 2), and what both are times."""
    scaling = rotation.scaling
    half = rotation.dim // 2
    frequencies = rotation.theta ** (-2.0 * np.arange(half) / rotation.dim)
    if factors is not None:
        frequencies = frequencies / factors.astype(np.float64)
    magnitude = scaling.attn_factor
    if scaling.type == "linear":
        frequencies = frequencies / scaling.factor
    elif scaling.type == "yarn":
        ramp = np.array(scaling.yarn_ramp(rotation.theta, rotation.dim))
        mix = ramp * scaling.yarn_ext_factor
        frequencies = frequencies / scaling.factor * (1 - mix) + frequencies * mix
        stretch = 0.1 * math.log(max(1.0, scaling.factor))
        magnitude *= (1 + stretch) / (1 + scaling.yarn_log_multiplier * stretch)
    return frequencies, magnitude
