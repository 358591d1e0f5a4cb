"""Bytes of tensors of every type: valid blocks, and blocks of random bytes."""

from __future__ import annotations

import functools
import random
import struct
from math import prod

import numpy as np

from scripts.models.make_synthetic import random_blocks
from trinity.formats.gguf_types import is_type_of_gguf, tensor_nbytes, type_id
from trinity.formats.stq import BLOCK as STQ_BLOCK
from trinity.formats.stq import BLOCK_BYTES as STQ_BYTES
from trinity.formats.ternary_rows import STQ_TYPE
from trinity_kernels.ggml import TYPES_BY_NAME
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.quant_type import QuantType

ALL_TYPES = (*TYPES_BY_NAME, "I2_S", "TL1", "TL2", "Q2_0_G128", "PQ2_0", "PTQ1_0", STQ_TYPE)
# What the kernels run of what GGUF files have; the others come from checkpoints alone.
RUNNABLE = (*(name for name in FORMS if is_type_of_gguf(name)), STQ_TYPE)
POOL_BLOCKS = 1 << 12
TAIL_BYTES = 32
LARGEST = 32 << 20  # a tensor that says it has more gets 64 bytes


def block_size(type_name: str) -> int:
    """Return the elements of a block; an I2_S tensor is a multiple of 128."""
    if type_name == STQ_TYPE:
        return STQ_BLOCK
    quant = TYPES.get(type_name)
    return quant.block_size if quant else 4


def file_type_id(type_name: str) -> int:
    """Return a type's id in files."""
    return type_id(type_name)


@functools.cache
def _sound(type_name: str) -> bytes:
    quant = TYPES[type_name]
    rng = np.random.default_rng(sum(type_name.encode()))
    if not is_type_of_gguf(type_name):
        return _drawn(quant, rng)
    try:
        return random_blocks(quant, POOL_BLOCKS, 0.06, rng)
    except (KeyError, ValueError, NotImplementedError, ZeroDivisionError):
        return rng.bytes(POOL_BLOCKS * quant.type_size)


def _drawn(quant: QuantType, rng: np.random.Generator) -> bytes:
    """Of random blocks, whatever their layout, those of small numbers."""
    found = b""
    while len(found) < POOL_BLOCKS * quant.type_size:
        blocks = np.frombuffer(rng.bytes(POOL_BLOCKS * quant.type_size), quant.block)
        with np.errstate(all="ignore"):
            largest = np.abs(quant.decode_blocks(blocks)).reshape(len(blocks), -1).max(axis=1)
        found += blocks[largest < 0.5].tobytes()
    return found


def own_content(type_name: str, shape: tuple[int, ...], rng: random.Random) -> bytes:
    """Return valid bytes of a tensor of any registered type; ``shape`` in NumPy's order."""
    quant = TYPES[type_name]
    nbytes = prod(shape) // quant.block_size * quant.type_size
    return _cut(_sound(type_name), nbytes, quant.type_size, rng)


@functools.cache
def _noise() -> bytes:
    return random.Random("noise").randbytes(1 << 20)


def _cut(pool: bytes, nbytes: int, unit: int, rng: random.Random) -> bytes:
    if nbytes >= len(pool):
        return (pool * (nbytes // len(pool) + 1))[:nbytes]
    start = rng.randrange((len(pool) - nbytes) // unit + 1) * unit
    return pool[start : start + nbytes]


def content(type_name: str, dims: list[int], rng: random.Random, hostile: float = 0.1) -> bytes:
    """Return a tensor's bytes; with probability ``hostile`` noise, zeros, ones or NaN."""
    nbytes = tensor_nbytes(type_name, dims)
    if nbytes is None or not 0 < nbytes <= LARGEST:
        return bytes(64)
    if rng.random() < hostile:
        kind = rng.randrange(5)
        if kind == 0:
            return bytes(nbytes)
        if kind == 1:
            return b"\xff" * nbytes
        if kind == 2:
            return (b"\x00\x7e" * (nbytes // 2 + 1))[:nbytes]  # half-precision NaN
        return _cut(_noise(), nbytes, 1, rng)
    if type_name in ("TL1", "TL2"):
        codes = _cut(_noise(), nbytes - TAIL_BYTES, 1, rng)
        return codes.translate(_TL_NIBBLES) + struct.pack("<f", 0.05) + bytes(28)
    if type_name == STQ_TYPE:
        scale = struct.pack("<e", 0.05)
        codes = _cut(_noise(), nbytes, STQ_BYTES, rng)
        parts = (codes[at : at + STQ_BYTES - 2] for at in range(0, nbytes, STQ_BYTES))
        return b"".join(part + scale for part in parts)
    if type_name not in TYPES:
        return _cut(_noise(), nbytes, 1, rng)
    quant = TYPES[type_name]
    if quant.tensor_scale:
        body = _cut(_sound(type_name), nbytes - TAIL_BYTES, 1, rng)
        return body + struct.pack("<f", 0.05) + bytes(TAIL_BYTES - 4)
    return _cut(_sound(type_name), nbytes, quant.type_size, rng)


_TL_NIBBLES = bytes((byte >> 4) % 9 << 4 | (byte & 15) % 9 for byte in range(256))


@functools.cache
def _norms() -> bytes:
    return (1 + 0.1 * np.random.default_rng(5).standard_normal(1 << 17)).astype("<f4").tobytes()


def norm(size: int, rng: random.Random) -> bytes:
    """Return float32 values near 1."""
    return _cut(_norms(), 4 * size, 4, rng)
