"""Products on AMX tiles, for prompts and batches: 16 rows by 16 tokens at a time.

TILES has the activations as tiles (activation_tiles.py), SCRATCH the scratch of each thread
(tile_layout.py). Up to TILE_ROWS tokens are multiplied by tiles_batch.py; more tokens, or any
number with MANY, by tiles_prompt.py. Steps of less than ``PACK_FROM`` tokens without MANY, and rows
that fill no tile, use dot products (rows.py).

Numerics: sums of ternary types are exact, for a row or for 256 codes with a scale, so results have
the bits of dot products. Up to TILE_ROWS tokens, most block types multiply codes exactly and add
groups in float32, so an output depends only on its row and its token. Otherwise bfloat16 weights
(scale * code, rounded) are multiplied by bfloat16 activations and summed in float32. F16 and BF16
weights are exact; their activations are split into two bfloat16, with a relative error of 2**-17.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels._jit import kernel_with
from trinity_kernels.memory import get_i64
from trinity_kernels.ops.matmul.operands import MANY, PACK_FROM, TILE_ROWS, N
from trinity_kernels.ops.matmul.rows import rows_by_dots
from trinity_kernels.ops.matmul.tiles_batch import multiply_batch
from trinity_kernels.ops.matmul.tiles_prompt import multiply_prompt
from trinity_kernels.record import ROWS


@kernel_with("amx")
def matmul_tiles(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Multiply; threads get equal numbers of panels of 16 rows."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    n = get_i64(record + 8 * N)
    panels = n // 16
    first = panels * thread // threads
    last = panels * (thread + 1) // threads
    many = get_i64(record + 8 * MANY) != 0
    if tokens < PACK_FROM and not many:
        stop = 16 * last
        if thread == threads - 1:
            stop = n
        rows_by_dots(isa, qt, record, 16 * first, stop, tokens)
        return
    if tokens <= TILE_ROWS and not many:
        multiply_batch(isa, qt, record, thread, first, last)
    else:
        multiply_prompt(isa, qt, record, thread, first, last)
    if thread == threads - 1:
        rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
