"""Tables that depend on positions: cosines and sines of rotary embeddings, and temperatures."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trinity.models.operations import Rotation, Temperature

_STEP_VALUES = 1 << 20  # bytes of a usual model's table, 8,192 positions


class RopeTable:
    """Cosines and sines for ``positions`` positions, computed when a position is first reached.

    ``values`` has shape (positions + spare, dim): dim
    2 cosines, then as many sines. The system allocates pages on the first write, so a table for a
    long context costs only what is used. ``factors`` (dim
    2) divides the frequencies. The ``spare`` rows are for ``mix``.
    Source: llama.cpp's rope_yarn and ggml_rope_yarn_corr_dims; the YaRN paper, section 3.
    """

    def __init__(
        self, rotation: Rotation, positions: int, factors: NDArray[np.float32] | None,
        spare: int = 0,
    ) -> None:  # fmt: skip
        self._positions = positions
        self._frequencies, self._magnitude = _frequencies(rotation, factors)
        self._step = max(1, _STEP_VALUES // rotation.dim)
        self._made = 0
        self.values = np.empty((positions + spare, rotation.dim), np.float32)

    @property
    def address(self) -> int:
        """The address of the table."""
        return int(self.values.ctypes.data)

    def reach(self, positions: int) -> int:
        """Compute at least the first ``positions`` rows; return how many are computed."""
        while self._made < positions:
            end = min(self._made + self._step, self._positions)
            angles = np.arange(self._made, end)[:, None] * self._frequencies
            rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * self._magnitude
            self.values[self._made : end] = rows
            self._made = end
        return self._made

    def mix(self, rows: NDArray[np.integer], chosen: NDArray[np.integer]) -> None:
        """Set spare rows, from 0, whose pair i rotates as at the position ``chosen[row, i]``."""
        half = self.values.shape[1] // 2
        pairs, into = np.arange(half), self._positions + rows
        self.values[into, :half] = self.values[chosen, pairs]
        self.values[into, half:] = self.values[chosen, half + pairs]


class TemperatureTable:
    """The factors of queries by position, computed on demand as in ``RopeTable``.

    ``values`` has shape (positions,).
    """

    def __init__(self, temperature: Temperature, positions: int) -> None:
        self._temperature = temperature
        self._made = 0
        self.values = np.empty(positions, np.float32)

    @property
    def address(self) -> int:
        """The address of the table."""
        return int(self.values.ctypes.data)

    def reach(self, positions: int) -> int:
        """Compute at least the first ``positions`` values; return how many are computed."""
        scale, length = self._temperature.scale, self._temperature.length
        offset = self._temperature.offset
        while self._made < positions:
            end = min(self._made + _STEP_VALUES, len(self.values))
            turns = (np.arange(self._made, end) + offset) // length
            self.values[self._made : end] = 1 + scale * np.log1p(turns)
            self._made = end
        return self._made


def _frequencies(
    rotation: Rotation, factors: NDArray[np.float32] | None
) -> tuple[NDArray[np.float64], float]:
    """The angle per position for each pair of dimensions (dim 2), and the factor of both values."""
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
