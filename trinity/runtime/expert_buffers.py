"""Memory for a step's experts: which rows belong to which expert, and a row per token and expert.

The layout is that of ``trinity_kernels.ops.expert_rows``. All layers share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trinity.models.decoder import Decoder
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.memory import aligned, row_bytes
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import expert_rows, route
from trinity_kernels.ops.matmul.activations import activation_bytes, tile_bytes
from trinity_kernels.ops.matmul.tiles import matmul_tiles

# The limit for all buffers of experts: so many bytes, plus the size of the experts' weights divided
# by the second number.
USUAL_BYTES, WEIGHTS_SHARE = 128_000_000, 2


class ExpertBuffers:
    """The buffers for steps of at most ``rows`` tokens."""

    def __init__(
        self, decoder: Decoder, weights: Sequence[ExpertWeight], rows: int, threads: int,
        kernel: Kernel,
    ) -> None:  # fmt: skip
        experts = max(choice.num_experts for choice in decoder.routes)
        count = rows * max(choice.per_token for choice in decoder.routes)
        self.chosen = np.zeros(count, np.int32)
        self.weights = np.zeros(count, np.float32)
        self.places = np.zeros(count, np.int32)
        self.tokens = np.zeros(count, np.int32)
        self.counts = np.zeros(experts, np.int64)
        self.groups = np.zeros(expert_rows.groups_words(experts), np.int64)
        self.rows = self.groups[expert_rows.ALL_ROWS : expert_rows.ALL_ROWS + 1]
        self._copies = aligned(threads * expert_rows.COPY_BYTES)
        self.groups[expert_rows.COPIES] = self._copies.ctypes.data
        self.scratch_stride = route.scratch_bytes(experts)
        self.scratch = aligned(threads * self.scratch_stride)
        codes, tiles = _bytes(decoder, weights, rows)
        self.codes = aligned(codes)
        self.tiles = aligned(tiles if kernel is matmul_tiles else 0)


def pair_bytes(weight: ExpertWeight) -> int:
    """Bytes of the tiles of 32 rows of activations."""
    return tile_bytes(weight.form, weight.k, 32)


def _bytes(decoder: Decoder, weights: Sequence[ExpertWeight], rows: int) -> tuple[int, int]:
    """Bytes of codes and of tiles for ``rows`` tokens."""
    experts = max(choice.num_experts for choice in decoder.routes)
    count = rows * max(choice.per_token for choice in decoder.routes)
    codes = count * max(activation_bytes(weight.form, weight.k) for weight in weights)
    pairs = -(-count // 32) + min(experts, count)
    return codes, pairs * max(pair_bytes(weight) for weight in weights)


def rows_that_fit(decoder: Decoder, weights: Sequence[ExpertWeight], rows: int) -> int:
    """``rows``, halved until the buffers of that many tokens stay within the limit.

    A hostile file can name many experts with about a byte per row, while each token's row takes
    several bytes of buffers.
    """
    if not weights:
        return rows
    per_token = max(choice.per_token for choice in decoder.routes)
    floats = per_token * sum(row_bytes(width) for width in decoder.expert_widths.values())
    bound = USUAL_BYTES + sum(weight.nbytes for weight in weights) // WEIGHTS_SHARE
    while rows > 1 and sum(_bytes(decoder, weights, rows)) + rows * floats > bound:
        rows //= 2
    return rows
