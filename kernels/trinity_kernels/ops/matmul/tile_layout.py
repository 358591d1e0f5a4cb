"""The types that AMX tiles multiply, the kinds of their tiles, and the scratch of a thread.

Ternary weights use int8 tiles, other types bfloat16 tiles. Up to TILE_ROWS tokens, types with exact
groups also use int8 tiles (tiles_int8.py): a tile has one group of 16 or 32 elements that share a
scale, and four groups, a part, are processed together. Types with fewer groups in a block, with
minima of 16 elements, or with activations of 19 bits always use bfloat16 if they use tiles.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.ops.matmul.activations import unpacked_bytes
from trinity_kernels.ops.matmul.readers import is_ternary
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.tags import constant

LEVELS = frozenset({"amx"})
# Offsets in the scratch of tiles_int8.py: codes of two parts, sums of two, scales of several.
CODES_AT, SUMS_AT, SCALES_AT, INT8_SCRATCH_BYTES = 0, 4096, 12288, 16384

# Panels that are unpacked together, an even number, and their largest size in bytes: they stay in
# the second-level cache while the tiles of 32 tokens are multiplied.
PANELS, PANELS_BYTES = 8, 1 << 20


def tile_types() -> frozenset[str]:
    """The types that tiles multiply: those that one or two bfloat16 represent."""
    return frozenset(name for name, reader in READERS.items() if reader.bfloat16s)


def int8_tile_types() -> frozenset[str]:
    """The types, not ternary, that are multiplied as integers if tokens are few."""
    return frozenset(name for name, reader in READERS.items() if _is_int8(reader))


def _is_int8(reader: BlockReader) -> bool:
    return reader.has_exact_groups and reader.form == "q8"


@constant
def is_int8(qt: Any) -> bool:
    """Whether a type is one of int8_tile_types."""
    return _is_int8(READERS[qt.value])


@constant
def tile_group(qt: Any) -> int:
    """Elements of a row in one int8 product, which share a scale: 16 or 32."""
    return min(READERS[qt.value].group, 32)


@constant
def elements_of(qt: Any) -> int:
    """Elements of a unit, which is a superblock or four blocks of 32."""
    return READERS[qt.value].unit


@constant
def unit_bytes(qt: Any) -> int:
    """Bytes of a unit."""
    reader = READERS[qt.value]
    return reader.unit // reader.elements * reader.nbytes


@constant
def parts_of(qt: Any) -> int:
    """Parts of a unit."""
    return int(elements_of(qt)) // (4 * int(tile_group(qt)))


def tile_parts(quant: str) -> tuple[int, int]:
    """Tiles for 32 weights, and for 32 activations (for 64 if both are int8)."""
    reader = READERS[quant]
    return reader.bfloat16s, 2 if reader.form in ("f32", "q19") else 1


@constant
def has_scaled_blocks(qt: Any) -> bool:
    """Whether a type is ternary with a scale for 256 codes."""
    return READERS[qt.value].scale_at != 0


@constant
def is_q8(qt: Any) -> bool:
    """Whether a type has the q8 form, whose tiles of few tokens start with integers."""
    return READERS[qt.value].form == "q8"


@constant
def tile_width(qt: Any) -> int:
    """Elements of a row of an unpacked tile: 64 int8 or 32 bfloat16."""
    return 64 if is_ternary(qt) else 32


@constant
def weight_tile_bytes(qt: Any) -> int:
    """Bytes of a tile of weights, including the tile of its rests."""
    return 1024 * tile_parts(qt.value)[0]


@constant
def activation_tile_bytes(qt: Any) -> int:
    """Bytes of a tile of activations, including the tile of its rests."""
    return 1024 * tile_parts(qt.value)[1]


@constant
def panels_at_once(qt: Any) -> int:
    """Panels that are processed together if tokens are few: each has a sum, split weights two."""
    return 4 if tile_parts(qt.value)[0] == 1 else 2


def scratch_bytes(form: str, k: int) -> int:
    """Bytes of a thread's scratch.

    Panels, sums, their transpose, a tile configuration; for ternary types exact sums and scales.
    """
    panel = 16 * max(unpacked_bytes(form, k), 1024)
    panels = min(PANELS * panel, max(2 * panel, PANELS_BYTES))
    rest = 16384 + 64 * PANELS * -(-k // 256) if form == "ternary" else 0
    return panels + 4096 + 1024 + 64 + rest
