"""Which types go through AMX tiles, in which form, and what a thread needs for it.

A step of more than TILE_ROWS tokens takes int8 tiles of ternary weights and bfloat16 tiles of all
others. Up to TILE_ROWS tokens, blocks whose groups fill tiles go as integers too (tiles_int8.py): a
tile holds one group of 16 or 32 elements that share a scale, and four groups, a part, are under way
together. Blocks of fewer groups, those with a minimum for 16 elements and those that take
activations of 19 bits stay bfloat16.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.ops.matmul.activations import unpacked_bytes
from trinity_kernels.ops.matmul.readers import is_ternary
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.tags import constant

LEVELS = frozenset({"amx"})
# Bytes of scratch of tiles_int8.py: codes of two parts, sums of two, scales of those under way.
CODES_AT, SUMS_AT, SCALES_AT, INT8_SCRATCH_BYTES = 0, 4096, 12288, 16384

# Panels that are unpacked together, an even number, and the bytes that they may take: the tiles of
# 32 tokens meet them in the second-level cache.
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
    """Whether a type takes the q8 form, of which few tokens' tiles hold integers first."""
    return READERS[qt.value].form == "q8"


@constant
def tile_width(qt: Any) -> int:
    """Elements of a row of an unpacked tile: 64 int8 or 32 bfloat16."""
    return 64 if is_ternary(qt) else 32


@constant
def weight_tile_bytes(qt: Any) -> int:
    """Bytes of a tile of weights, with its rest."""
    return 1024 * tile_parts(qt.value)[0]


@constant
def activation_tile_bytes(qt: Any) -> int:
    """Bytes of a tile of activations, with its rest."""
    return 1024 * tile_parts(qt.value)[1]


@constant
def panels_at_once(qt: Any) -> int:
    """Panels at once where the tokens are few: a tile of sums each, of split weights two."""
    return 4 if tile_parts(qt.value)[0] == 1 else 2


def scratch_bytes(form: str, k: int) -> int:
    """Bytes that a thread needs.

    Panels, sums, their transpose, a tile configuration; of ternary types exact sums and scales.
    """
    panel = 16 * max(unpacked_bytes(form, k), 1024)
    panels = min(PANELS * panel, max(2 * panel, PANELS_BYTES))
    rest = 16384 + 64 * PANELS * -(-k // 256) if form == "ternary" else 0
    return panels + 4096 + 1024 + 64 + rest
