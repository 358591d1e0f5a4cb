"""The product on AMX tiles, for prompts and batches: 16 rows by 16 tokens at a time.

The record has TILES, the activations as tiles (activation_tiles.py), and SCRATCH, per thread what
tile_layout.py says. At most TILE_ROWS tokens go as tiles_batch.py has it, more as tiles_prompt.py.
A step of less than ``PACK_FROM`` tokens, and rows that fill no tile, go by dot products, as in
rows.py. With MANY every number of tokens goes as tiles_prompt.py has it.

Numerics: sums of ternary types are exact, of a row or of 256 codes with a scale, and the rest is
done as for a single token: every result has the same bits as the vector path's. Of at most
TILE_ROWS tokens most block types multiply codes exactly and sum in float32, an output by its row
and token alone; else it is bfloat16 weights (scale * code, rounded) by bfloat16 activations, summed
in float32. F16 and BF16 weights are exact, their activations are split in two bfloat16, which
leaves 2**-17 of each out.
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
    """Panels of 16 rows, shared out evenly; see the module."""
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
