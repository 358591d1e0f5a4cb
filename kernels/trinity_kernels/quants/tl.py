"""TL1 and TL2: bitnet.cpp's ternary look-up layouts, converted to I2_S.

Both divide a matrix of M rows and K columns into tiles for one CPU's look-up instructions. The
tiling (BM, BY, bm) depends on the shape and is not stored in the file.

TL1, with by = 256 / bm: bytes in the order [M/BM][K/BY][BM/bm][BY/by][bm/16][by/4][16 rows], each
of 4 neighbouring columns: two nibbles 3 * c0 + c1 of codes 0..2, the first pair above.
TL2, with bm = 32 and by = 6: the first K // BY * BY columns in threes. A nibble holds
|9a + 3b + c| of values -1..1, a bit elsewhere the sign. The other columns are in pairs like TL1's,
in tiles of 32 columns. Of each 32 rows the groups of 8 are stored in the order 0, 2, 1, 3.

Source: microsoft/BitNet utils/convert-hf-to-gguf-bitnet.py, preprocess_weights_tl1 and _tl2;
the tilings are those of its setup_env.py and preset_kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.quants.i2_s import pack_codes

Codes = NDArray[np.uint8]
Tiling = tuple[int, int, int]

TL_TYPES = ("TL1", "TL2")
# (M, K) to (BM, BY, bm).
TILINGS: dict[str, dict[tuple[int, int], Tiling]] = {
    "TL1": {
        (3200, 8640): (160, 64, 32), (3200, 3200): (320, 128, 64), (8640, 3200): (320, 64, 32),
        (1536, 4096): (256, 128, 32), (1536, 1536): (128, 64, 64), (4096, 1536): (256, 128, 32),
    },
    "TL2": {
        (3200, 8640): (160, 96, 32), (3200, 3200): (320, 96, 32), (8640, 3200): (320, 96, 32),
        (1536, 4096): (256, 96, 32), (1536, 1536): (128, 192, 32), (4096, 1536): (256, 96, 32),
        (14336, 4096): (256, 96, 32), (4096, 14336): (128, 96, 32), (1024, 4096): (256, 96, 32),
        (4096, 4096): (128, 96, 32),
    },
}  # fmt: skip
# Shapes for which setup_env.py and preset_kernels differ; the bytes do not tell them apart.
AMBIGUOUS: dict[tuple[int, int], tuple[Tiling, Tiling]] = {
    (14336, 4096): ((256, 128, 32), (256, 128, 64)),
    (4096, 14336): ((128, 64, 64), (256, 128, 32)),
    (1024, 4096): ((256, 128, 32), (128, 64, 64)),
    (4096, 4096): ((128, 64, 64), (128, 64, 32)),
}

_GROUPS = [0, 2, 1, 3]


class TLError(ValueError):
    """The tiling does not fit the shape, or the bytes do not fit the tiling."""


def tl_codes(type_name: str, data: Codes, shape: tuple[int, int], tiling: Tiling) -> Codes:
    """The codes 0, 1, 2 (for -1, 0, +1) of a matrix, as (M, K) bytes.

    ``data`` begins with the matrix's bytes; the rest is ignored.
    Raises: TLError.
    """
    _check(min(tiling) > 0, shape, tiling)
    decode = _tl1 if type_name == "TL1" else _tl2
    return decode(np.ascontiguousarray(data).reshape(-1), *shape, tiling)


def to_i2_s(type_name: str, data: Codes, shape: tuple[int, int], tiling: Tiling) -> Codes:
    """Convert a whole tensor, whose last 32 bytes begin with its scale, to I2_S.

    Raises: TLError.
    """
    codes = tl_codes(type_name, data, shape, tiling).reshape(-1)
    if len(codes) % 128:
        raise TLError(f"{len(codes)} weights do not fill blocks of 128")
    packed = np.empty(len(codes) // 4 + 32, np.uint8)
    packed[:-32].reshape(-1, 32)[:] = pack_codes(codes.reshape(-1, 128))
    packed[-32:] = data.reshape(-1)[-32:]
    return packed


def _check(fits: bool, shape: tuple[int, int], tiling: Tiling) -> None:
    if not fits:
        raise TLError(f"tiles of {tiling} do not divide a matrix of shape {shape}")


def _take(data: Codes, first: int, count: int) -> Codes:
    if len(data) < first + count:
        raise TLError(f"{len(data)} bytes, where the tiling needs {first + count}")
    return data[first : first + count]


def _largest_nibble(data: Codes, limit: int) -> None:
    largest = max(int((data >> 4).max(initial=0)), int((data & 15).max(initial=0)))
    if largest > limit:
        raise TLError(f"a nibble of {largest}, where {limit} is the largest")


def _pair_table() -> Codes:
    """Four codes for each byte of two pairs; bytes with a nibble above 8 are refused before."""
    high, low = np.arange(256) >> 4, np.arange(256) & 15
    return np.stack([high // 3, high % 3, low // 3, low % 3], axis=1).astype(np.uint8)


def _tl1(data: Codes, m: int, k: int, tiling: Tiling) -> Codes:
    tile_m, tile_k, bm = tiling
    _check(bm in (16, 32, 64), (m, k), tiling)
    by = 256 // bm
    _check(not (m % tile_m or k % tile_k or tile_m % bm or tile_k % by), (m, k), tiling)
    stored = _take(data, 0, m * k // 4)
    _largest_nibble(stored, 8)
    order = (m // tile_m, k // tile_k, tile_m // bm, tile_k // by, bm // 16, by // 4, 16, 4)
    codes = _pair_table()[stored].reshape(order)
    return codes.transpose(0, 2, 4, 6, 1, 3, 5, 7).reshape(m, k)


def _rows(stored: Codes) -> Codes:
    """Rows [..., 32, x] in stored order, put into their natural order."""
    groups = stored.reshape(*stored.shape[:-2], 4, 8, stored.shape[-1])
    return groups[..., _GROUPS, :, :].reshape(stored.shape)


def _tl2(data: Codes, m: int, k: int, tiling: Tiling) -> Codes:
    tile_m, tile_k, bm = tiling
    _check(bm == 32 and tile_m % 32 == 0 and tile_k % 24 == 0 and tile_k > 0, (m, k), tiling)
    threes = k // tile_k * tile_k
    pairs = k - threes
    _check(not (m % tile_m or pairs % 32), (m, k), tiling)
    index_bytes, sign_bytes = m * threes // 6, m * threes // 24
    codes = np.empty((m, k), np.uint8)
    if threes:
        blocks = (m // tile_m, threes // tile_k, tile_m // 32)
        stored = _take(data, 0, index_bytes)
        _largest_nibble(stored, 13)
        nibbles = np.stack([stored >> 4, stored & 15], axis=-1)
        sizes = _rows(nibbles.reshape(*blocks, tile_k // 6, 32, 2))
        # [iM][iK][ib][row][triple]
        sizes = sizes.transpose(0, 1, 2, 4, 3, 5).reshape(*blocks, 32, tile_k // 3)
        words = _take(data, index_bytes, sign_bytes).view("<u2")
        words = words.reshape(*blocks, tile_k // 24, 16)
        shifts = 15 - 2 * np.arange(8, dtype=np.uint16)
        bits = np.stack([words[..., None] >> shifts, words[..., None] >> (shifts - 1)], axis=-3)
        # [iM][iK][ib][jg][half of the rows][row of 16][triple of 8]
        negative = (bits & 1).astype(bool).reshape(*blocks, tile_k // 24, 32, 8)
        negative = negative.transpose(0, 1, 2, 4, 3, 5).reshape(*blocks, 32, tile_k // 3)
        values = np.where(negative, 13 - sizes.astype(np.int8), 13 + sizes.astype(np.int8))
        number = np.arange(27)
        table = np.stack([number // 9, number // 3 % 3, number % 3], axis=1).astype(np.uint8)
        found = table[values].reshape(*blocks, 32, tile_k)
        codes[:, :threes] = found.transpose(0, 2, 3, 1, 4).reshape(m, threes)
    if pairs:
        stored = _take(data, index_bytes + sign_bytes, m * pairs // 4)
        _largest_nibble(stored, 8)
        blocks = (m // tile_m, pairs // 32, tile_m // 32)
        found = _rows(_pair_table()[stored].reshape(*blocks, 8, 32, 4))
        codes[:, threes:] = found.transpose(0, 2, 4, 1, 3, 5).reshape(m, pairs)
    return codes
