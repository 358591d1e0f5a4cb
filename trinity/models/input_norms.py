"""Optional norms at the inputs of linears, in any family.

BitNet's embedding models are Qwen 3 and Gemma 3 with a root-mean-square norm before each linear,
named after its weight with ``_norm_in``. Linears that share an input have separate norms.
Source: BitNet docs/bitnet-embeddings-i2s-guide.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trinity.models.architecture import Has
from trinity.models.operations import Linear, Norm, Operation

SUFFIX = "_norm_in"


def with_input_norms(layer: list[Operation], has: Has) -> list[Operation]:
    """The operations of a layer, with the file's norms before its linears."""
    return [part for operation in layer for part in _parts(operation, has)]


def _parts(operation: Operation, has: Has) -> Iterator[Operation]:
    if not isinstance(operation, Linear):
        yield operation
        return
    weights = dict.fromkeys(product.weight for product in operation.products)
    normed = [name for name in weights if has(name + SUFFIX)]
    if not normed:
        yield operation
        return
    # Each norm has its own buffer, because the next one may run while another is still read.
    for name in normed:
        yield Norm(operation.x, name + SUFFIX, name + SUFFIX, operation.width)
    for name in weights:
        products = tuple(part for part in operation.products if part.weight == name)
        x = name + SUFFIX if name in normed else operation.x
        yield replace(operation, x=x, products=products)
