"""Pages of a KV cache in NumPy, and those for the checks of attention and of rope_store."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.kv_layout import PAGE
from trinity_kernels.selftest.comparing import at, random_numbers

Array = NDArray[Any]
HEADS, KV_HEADS, DIM, VALUE_DIM, PAGES = 10, 1, 24, 40, 3
POSITIONS = PAGES * PAGE
_DTYPES = {"F16": np.float16, "F32": np.float32}


def page_type(kv_type: str, kv_heads: int, head_dim: int, value_dim: int) -> np.dtype[np.void]:
    """A layer's part of a page as a structure (kv_layout.py)."""
    padded = -(-value_dim // 32) * 32
    if kv_type == "Q8_0":
        fours, scales = -(-head_dim // 4), -(-head_dim // 64) * 2
        tile: list[Any] = [("codes", "i1", (fours, 16, 4)), ("scales", "<f2", (scales, 16))]
        values: list[Any] = [("codes", "i1", (PAGE, padded))]
        values += [("scales", "<f2", (padded // 32, PAGE))]
    else:
        dtype = _DTYPES[kv_type]
        tile, values = [("codes", dtype, (head_dim, 16))], [("codes", dtype, (PAGE, padded))]
    return np.dtype([("keys", tile, (kv_heads, PAGE // 16)), ("values", values, (kv_heads,))])


def write(pages: Array, keys: Array, values: Array) -> None:
    """Store keys and values (KV heads, positions, dim) of whole pages (count,) of ``page_type``."""
    count, heads = len(pages), len(keys)
    key_codes, key_scales = _codes(pages["keys"].dtype, keys)
    stored = pages["keys"]["codes"]
    if key_scales is not None:
        fours = stored.shape[3]
        padded = np.zeros((*keys.shape[:2], 4 * fours), np.int8)
        padded[..., : keys.shape[2]] = key_codes[..., : keys.shape[2]]
        by_four = padded.reshape(heads, count, 8, 16, fours, 4)
        stored[:] = by_four.transpose(1, 0, 2, 4, 3, 5)
        by_tile = key_scales.reshape(heads, count, 8, 16, -1).transpose(1, 0, 2, 4, 3)
        pages["keys"]["scales"][:, :, :, : by_tile.shape[3]] = by_tile
    else:
        stored[:] = key_codes.reshape(heads, count, 8, 16, -1).transpose(1, 0, 2, 4, 3)
    value_codes, value_scales = _codes(pages["values"].dtype, values)
    by_page = value_codes.reshape(heads, count, PAGE, -1).transpose(1, 0, 2, 3)
    pages["values"]["codes"][..., : by_page.shape[3]] = by_page
    if value_scales is not None:
        by_block = value_scales.reshape(heads, count, PAGE, -1).transpose(1, 0, 3, 2)
        pages["values"]["scales"][:] = by_block


def read(pages: Array, head_dim: int, value_dim: int) -> tuple[Array, Array]:
    """The keys and values in pages (KV heads, positions, dim)."""
    keys, values = pages["keys"], pages["values"]
    count, heads = values.shape
    if keys.dtype.fields is not None and "scales" in keys.dtype.fields:
        key_codes = keys["codes"].transpose(1, 0, 2, 4, 3, 5).reshape(heads, count * PAGE, -1)
        key_scales = keys["scales"].transpose(1, 0, 2, 4, 3).reshape(heads, count * PAGE, -1)
        found_keys = _floats(key_codes, key_scales)
        value_codes = values["codes"].transpose(1, 0, 2, 3).reshape(heads, count * PAGE, -1)
        value_scales = values["scales"].transpose(1, 0, 3, 2).reshape(heads, count * PAGE, -1)
        found_values = _floats(value_codes, value_scales)
    else:
        found_keys = keys["codes"].transpose(1, 0, 2, 4, 3).reshape(heads, count * PAGE, -1)
        found_values = values["codes"].transpose(1, 0, 2, 3).reshape(heads, count * PAGE, -1)
    return found_keys[..., :head_dim], found_values[..., :value_dim]


def kept(kv_type: str, x: Array) -> Array:
    """Keys or values (..., dim) with the rounding of the type that stores them."""
    if kv_type == "Q8_0":
        return _floats(*_quantized(x, np.float16))[..., : x.shape[-1]]
    return x.astype(_DTYPES[kv_type])


def taken(kv_type: str, q: Array) -> Array:
    """Queries (..., dim) with the rounding that attention gives them."""
    return _floats(*_quantized(q, np.float32))[..., : q.shape[-1]] if kv_type == "Q8_0" else q


def _codes(dtype: Any, x: Array) -> tuple[Array, Array | None]:
    if "scales" in dtype.fields:
        return _quantized(x, np.float16)
    return x.astype(dtype["codes"].base), None


def _quantized(x: Array, of_scales: Any) -> tuple[Array, Array]:
    """Codes, padded to whole blocks of 32, and a scale for each block."""
    padded = np.zeros((*x.shape[:-1], -(-x.shape[-1] // 32) * 32), np.float32)
    padded[..., : x.shape[-1]] = x
    blocks = padded.reshape(*x.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(axis=-1)
    scales = (largest / np.float32(127)).astype(of_scales)
    with np.errstate(divide="ignore", invalid="ignore"):
        if of_scales is np.float32:
            inverse = np.float32(127) / largest
        else:
            inverse = np.float32(1) / scales.astype(np.float32)
        inverse[~(scales > 0)] = 0
        scaled = np.nan_to_num(blocks * inverse[..., None])
    codes = np.rint(np.clip(scaled, -127, 127)).astype(np.int8)
    return codes.reshape(padded.shape), scales


def _floats(codes: Array, scales: Array) -> Array:
    wide = np.repeat(scales.astype(np.float32), 32, axis=-1)[..., : codes.shape[-1]]
    return codes.astype(np.float32) * wide


def filled_pages(kv_type: str) -> tuple[Array, Array, Array]:
    """Random pages of one layer, and their keys and values (positions, KV heads, dim)."""
    keys, values = (
        random_numbers().standard_normal((POSITIONS, KV_HEADS, dim)).astype(np.float32)
        for dim in (DIM, VALUE_DIM)
    )
    pages = np.zeros(PAGES, page_type(kv_type, KV_HEADS, DIM, VALUE_DIM))
    write(pages, keys.transpose(1, 0, 2), values.transpose(1, 0, 2))
    return pages, kept(kv_type, keys).astype(np.float64), kept(kv_type, values).astype(np.float64)


def keys_and_values(pages: Array) -> tuple[Array, Array]:
    """The keys and values in pages (positions, KV heads, dim)."""
    keys, values = read(pages, DIM, VALUE_DIM)
    return keys.transpose(1, 0, 2), values.transpose(1, 0, 2)


def page_table(pages: Array) -> Array:
    """The addresses of the pages."""
    return at(pages) + pages.itemsize * np.arange(len(pages), dtype=np.int64)
