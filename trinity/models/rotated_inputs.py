"""Hadamard transforms before products with rotated weights, in any family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig, WeightRotation
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.tensor_names import complete
from trinity.models.operations import Copy, Hadamard, Linear, Operation
from trinity.models.recurrent_operations import DeltaRule

_GROUPED = "ssm_out"


def with_rotated_inputs(
    layer: list[Operation], prefix: str, config: ModelConfig
) -> list[Operation]:
    """The operations of a layer, with a transform before products with rotated weights."""
    if config.rotation is None:
        return layer
    tiled = any(isinstance(part, DeltaRule) and part.tiled for part in layer)
    grouped = config.rotation.grouped_heads and tiled
    return [part for operation in layer for part in _parts(operation, prefix, config, grouped)]


def _parts(
    operation: Operation, prefix: str, config: ModelConfig, grouped: bool
) -> Iterator[Operation]:
    rotation = config.rotation
    assert rotation is not None
    if not isinstance(operation, Linear):
        yield operation
        return
    rotated = tuple(
        product for product in operation.products
        if prefix + complete(product.weight) in rotation.weights
    )  # fmt: skip
    others = tuple(product for product in operation.products if product not in rotated)
    if rotated:
        # A separate buffer, because other operations read the input without rotation.
        x, out = operation.x, f"{operation.x}_rotated"
        if grouped and rotated[0].weight == _GROUPED:
            yield from _grouped(config, x, out)
            x = out
        yield Hadamard(x, out, operation.width)
        yield replace(operation, x=out, products=rotated)
    if others:
        yield replace(operation, products=others)


def _grouped(config: ModelConfig, x: str, out: str) -> Iterator[Operation]:
    """Reorder the value heads so that those sharing a key head are adjacent."""
    ssm = config.ssm
    assert ssm is not None
    shared, dim = ssm.num_heads // ssm.num_groups, ssm.head_dim
    for turn in range(shared):
        yield Copy(
            x, out, ssm.num_groups, dim, dim, shared * dim,
            x_first=turn * ssm.num_groups * dim, out_first=turn * dim,
        )  # fmt: skip


def rotated_embedding(config: ModelConfig) -> list[Operation]:
    """The inverse transform of rows of the embedding, if they are rotated."""
    if config.rotation is None or not config.rotation.embedding:
        return []
    return [Hadamard("x", "x", config.hidden_size, inverse=True)]


def check_rotation(
    config: ModelConfig, operations: Iterable[tuple[str, Operation]], head: str,
    rotates_head: bool, source: str,
) -> None:  # fmt: skip
    """Check that each rotated weight is one whose input is transformed, and that signs exist.

    ``operations``: those of the decoder, with the prefixes of their weights. Raises
    UnsupportedError for a weight of another kind, ConfigError for widths that do not fit.
    """
    rotation = config.rotation
    assert rotation is not None
    served = {f"{head}.weight"} if rotates_head else set()
    widths = {config.hidden_size} if rotates_head else set()
    for prefix, operation in operations:
        if isinstance(operation, Linear):
            served |= {prefix + complete(name) for name in operation.weights()}
        if isinstance(operation, Hadamard):
            widths.add(operation.width)
    if others := set(rotation.weights) - served:
        raise UnsupportedError(
            f"{source}: the keys name {min(others)!r} as a rotated weight, but trinity rotates the "
            "inputs of no such product; use a newer trinity, or a file without rotation"
        )
    if config.tie_word_embeddings and rotation.embedding and not rotates_head:
        raise UnsupportedError(
            f"{source}: the embedding is rotated and is also the output's matrix, which the keys "
            "do not name as rotated; use a newer trinity, or a file without rotation"
        )
    known = None if rotation.signs is None else {width for width, _ in rotation.signs}
    for width in sorted(widths):
        if width % rotation.block_size:
            raise ConfigError(
                f"{source}: inputs of {width} values are no multiple of the rotation's block of "
                f"{rotation.block_size}; the file contradicts itself: convert the model again"
            )
        if known is not None and width not in known:
            raise ConfigError(
                f"{source}: the rotation has no signs for inputs of {width} values; the file is "
                "incomplete: convert the model again"
            )


def factors_of(rotation: WeightRotation, width: int) -> NDArray[np.float32]:
    """The signs of inputs of a width, divided by the root of the block size."""
    signs = np.ones(width, np.int8)
    if rotation.signs is not None:
        signs = np.frombuffer(dict(rotation.signs)[width], np.int8)
    factors: NDArray[np.float32] = signs.astype(np.float32)
    return factors / np.float32(math.sqrt(rotation.block_size))
