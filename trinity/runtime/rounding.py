"""Which bits the products of a step have, where kernels for few and for many rows differ in them.

Dot products, panels and tiles add a product's terms in another order, and tiles round weights, so a
row's bits depend on the kernel. Within one kernel they depend on the row alone. Everything beside
products (attention, norms, recurrent states) gives a row the same bits in any step.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import variants


class Rounding(Enum):
    """The kernels of a step.

    ``FASTEST``: those that are fastest for its number of rows. ``PROMPT``: those for many rows,
    however few there are, so that a prompt has the same bits wherever it is cut and whatever else
    is in the step. ``SINGLE``: those of a single row, however many there are.
    """

    FASTEST = "fastest"
    PROMPT = "prompt"
    SINGLE = "single"


def same_bits(kernel: Kernel, types: Iterable[str]) -> bool:
    """Whether weights of ``types`` give a row the bits of a single row in every step.

    ``kernel``: the one for many rows, of the types that it takes.
    """
    taken = (quant for quant in types if variants.serves(kernel, quant))
    return all(variants.serves(kernel, quant, exact=True) for quant in taken)
