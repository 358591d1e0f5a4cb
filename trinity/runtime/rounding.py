"""Selects the bits of a step's products if kernels for few and for many rows round differently.

Dot products, panels and tiles add the terms of a product in different orders, and tiles round
weights. A row's bits therefore depend on the kernel, but within one kernel only on the row.
Attention rounds in steps with rows of prompts if the tiles of these steps do. All other operations
(norms, recurrent states) give a row the same bits in every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.tile_layout import tile_parts
from trinity_kernels.ops.matmul.tiles import matmul_tiles


class Rounding(Enum):
    """The kernels of a step.

    ``FASTEST``: the fastest ones for the number of rows. ``PROMPT``: those for many rows, even if
    there are few, so that a prompt's bits do not depend on how it is divided or on the rest of the
    step. ``SINGLE``: those for a single row, even if there are many.
    """

    FASTEST = "fastest"
    PROMPT = "prompt"
    SINGLE = "single"


def same_bits(kernel: Kernel, types: Iterable[str]) -> bool:
    """Whether weights of ``types`` give a row the bits of a single row in every step.

    ``kernel``: the kernel for many rows of the types that it supports.
    """
    taken = (quant for quant in types if variants.serves(kernel, quant))
    return all(variants.serves(kernel, quant, exact=True) for quant in taken)


def rounds_prompts(kernel: Kernel, types: Iterable[str]) -> bool:
    """Whether all products that round in prompts round weights and activations to bfloat16.

    ``kernel``, ``types``: as for ``same_bits``.
    """
    taken = (quant for quant in types if variants.serves(kernel, quant))
    rounded = [quant for quant in taken if not variants.serves(kernel, quant, exact=True)]
    whole = all(tile_parts(quant) == (1, 1) for quant in rounded)
    return kernel is matmul_tiles and bool(rounded) and whole
