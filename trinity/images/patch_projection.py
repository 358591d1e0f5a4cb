"""A vision tower without layers: patches, projected to rows of the text model.

Source: transformers' Gemma4UnifiedVisionEmbedder; llama.cpp, tools/mtmd/models/gemma4uv.cpp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.images.family import ImageFamily
from trinity.images.patches import patches_of
from trinity.images.tower_config import TowerConfig
from trinity.images.tower_weights import TowerWeights
from trinity.runtime.records.recorder import Recorder, RowBuffer
from trinity_kernels.team import Team


class PatchProjection:
    """Projects the patches of images of ``count`` rows, with norms and positions."""

    def __init__(
        self, family: ImageFamily, config: TowerConfig, weights: TowerWeights, recorder: Recorder,
        count: int,
    ) -> None:  # fmt: skip
        self.count, self._config = count, config
        d, patch = config.hidden_size, weights.patches()
        self._positions = weights.table("v.position_embd.weight", 2, config.positions, d)
        self._patches, self._x = RowBuffer(count, patch.k), RowBuffer(count, d)
        self._out = RowBuffer(count, config.projection_size)
        patches, x = self._patches.at(), self._x.at()
        first, second, third = weights.patch_norms()
        recorder.rows, recorder.most = recorder.number(count), count
        recorder.norm(patches, *first, patches)
        recorder.linear(patches, (patch, x))
        recorder.norm(x, *second, x)
        self._stem = recorder.take()
        recorder.norm(x, *third, x)
        recorder.norm(x, np.ones(d, np.float32), None, x, eps=config.layer_norm_eps)
        (name,) = family.projector
        recorder.linear(x, (weights.linear(name, config.projection_size, d), self._out.at()))
        self._rest = recorder.take()

    def run(self, team: Team, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rows of an image (height, width, 3) of normalized pixels."""
        size = self._config.patch_size
        height, width = pixels.shape[0] // size, pixels.shape[1] // size
        self._patches.values[:] = patches_of(pixels, size, 1)
        team.run(self._stem.records)
        columns, rows = self._positions[0, :width], self._positions[1, :height, None]
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
            self._x.values[:] += (columns + rows).reshape(self.count, -1)
        team.run(self._rest.records)
        return self._out.values.copy()
