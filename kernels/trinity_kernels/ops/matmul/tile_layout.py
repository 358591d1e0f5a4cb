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
from trinity_kernels.quants import READERS
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.floats import Plain
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.tags import constant

LEVELS = frozenset({"amx"})
# Bytes of scratch of tiles_int8.py: codes of two parts, sums of two, scales of those under way.
CODES_AT, SUMS_AT, SCALES_AT, INT8_SCRATCH_BYTES = 0, 4096, 12288, 16384

# Panels that are unpacked together, an even number, and the bytes that they may take: the tiles of
# 32 tokens meet them in the second-level cache.
PANELS, PANELS_BYTES = 8, 1 << 20


def tile_types() -> frozenset[str]:
    """The types that tiles multiply."""
    return frozenset(name for name, reader in READERS.items() if not _loses_bits(name, reader))


def _loses_bits(name: str, reader: Any) -> bool:
    """Whether tiles of bfloat16 would be too coarse.

    F32, and floats under a float32 scale, have more bits than two bfloat16. Codes under a scale and
    a minimum have more than the one that they would get beside activations of 19 bits.
    """
    if isinstance(reader, Plain):
        return name == "F32" or reader.elements > 1
    return isinstance(reader, Block32 | Affine4) and reader.form == "q19" and reader.minimum_at > 0


def int8_tile_types() -> frozenset[str]:
    """The types, not ternary, that are multiplied as integers where tokens are few."""
    return frozenset(name for name, reader in READERS.items() if _is_int8(reader))


def _is_int8(reader: Any) -> bool:
    if isinstance(reader, SuperBlock):
        fills = reader.elements % (4 * _group(reader)) == 0
        return fills and reader.minima != 16 and reader.form == "q8"
    return isinstance(reader, Block32) and reader.form == "q8"


def _group(reader: Any) -> int:
    return 16 if isinstance(reader, SuperBlock) and reader.group == 16 else 32


@constant
def is_int8(qt: Any) -> bool:
    """Whether a type is one of int8_tile_types."""
    return _is_int8(READERS[qt.value])


@constant
def tile_group(qt: Any) -> int:
    """Elements that share a scale, as tiles take them."""
    return _group(READERS[qt.value])


@constant
def elements_of(qt: Any) -> int:
    """Elements of a unit, which is a superblock or four blocks of 32."""
    reader = READERS[qt.value]
    return reader.elements if isinstance(reader, SuperBlock) else 128


@constant
def unit_bytes(qt: Any) -> int:
    """Bytes of a unit."""
    reader = READERS[qt.value]
    return reader.nbytes if isinstance(reader, SuperBlock) else 4 * reader.nbytes


@constant
def parts_of(qt: Any) -> int:
    """Parts of a unit."""
    return int(elements_of(qt)) // (4 * int(tile_group(qt)))


def tile_parts(quant: str) -> tuple[int, int]:
    """Tiles for 32 weights and for 32 activations (for 64 where both are int8)."""
    reader = READERS[quant]
    if isinstance(reader, Plain):
        return (2 if reader.split else 1), 2
    return 1, 2 if reader.form == "q19" else 1


@constant
def has_scaled_blocks(qt: Any) -> bool:
    """Whether a type is ternary with a scale to 256 codes."""
    reader = READERS[qt.value]
    return isinstance(reader, Ternary) and reader.scale_at != 0


@constant
def is_ternary(qt: Any) -> bool:
    """Whether a type's tiles are int8, for any number of tokens."""
    return isinstance(READERS[qt.value], Ternary)


@constant
def is_q8(qt: Any) -> bool:
    """Whether a type takes the q8 form, of which few tokens' tiles hold integers first."""
    return READERS[qt.value].form == "q8"


@constant
def tile_width(qt: Any) -> int:
    """Elements of a row of an unpacked tile: 64 int8 or 32 bfloat16."""
    return 64 if isinstance(READERS[qt.value], Ternary) else 32


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
