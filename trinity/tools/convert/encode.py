"""The bytes of each tensor in the chosen type, chunk by chunk, made only when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod

import numpy as np

from trinity.errors import InputError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.gguf_writer import Chunk
from trinity.formats.huggingface.quantization import Ternary
from trinity.formats.huggingface.tensors import HFTensor
from trinity.formats.huggingface.weights import (
    TernaryMatrix,
    read_blocks,
    read_floats,
    read_ternary,
    weight_scale,
)
from trinity_kernels.quants import TYPES
from trinity_kernels.quants.i2_s import pack_codes

# --outtype to the type of the layers' weights, and general.file_type: llama.cpp's llama_ftype, and
# bitnet.cpp's for I2_S.
OUTTYPES = {
    "i2_s": ("I2_S", 40),
    "tq1_0": ("TQ1_0", 36),
    "tq2_0": ("TQ2_0", 37),
    "f16": ("F16", 1),
    "bf16": ("BF16", 32),
    "f32": ("F32", 0),
    "q8_0": ("Q8_0", 7),
}
BLOCK_TYPE = "MXFP4"
# general.file_type of files with experts in blocks, whatever float type the rest has.
_FILE_TYPE_WITH_BLOCKS = 38
_CHUNK_ELEMENTS = 1 << 22
_CODES_PER_BLOCK = 128
_HALF_SCALES = ("TQ1_0", "TQ2_0")


def file_type(outtype: str, types: Iterable[str]) -> int:
    """general.file_type of a file whose tensors have these types."""
    if BLOCK_TYPE in types and outtype in ("f32", "f16", "bf16"):
        return _FILE_TYPE_WITH_BLOCKS
    return OUTTYPES[outtype][1]


def chosen_type(needed: HFTensor, outtype: str, ternary: Ternary | None) -> str:
    """The tensor type that ``needed`` gets.

    As llama.cpp and Microsoft's file have it: norms, biases and routers F32; the embedding and the
    output of files with ternary types F16; F16 too where a row is no whole number of Q8_0's blocks;
    blocks of MXFP4 as they are. Raises UnsupportedError for a ternary type of a matrix that it
    cannot hold.
    """
    wanted = OUTTYPES[outtype][0]
    if needed.kind == "precise":
        return "F32"
    if needed.stored.blocks:
        return BLOCK_TYPE
    quant = TYPES[wanted]
    if quant.ternary and needed.kind == "matrix":
        return "F16"
    columns = needed.shape[-1]
    if wanted == "I2_S" and prod(needed.shape) % _CODES_PER_BLOCK:
        raise UnsupportedError(_misfit(needed, wanted, "a multiple of 128 weights in a matrix"))
    if wanted in _HALF_SCALES and columns % quant.block_size:
        raise UnsupportedError(
            _misfit(needed, wanted, f"rows of a multiple of {quant.block_size} weights")
            + "; --outtype i2_s holds it"
        )
    if wanted == "Q8_0" and columns % quant.block_size:
        return "F16"
    return wanted


def _misfit(needed: HFTensor, wanted: str, needs: str) -> str:
    return f"{wanted} needs {needs}, but {needed.source!r} has the shape {needed.shape}"


def needs_scale_tensor(
    needed: HFTensor, type_name: str, ternary: Ternary | None, checkpoint: Checkpoint
) -> bool:
    """Whether the weight is written as -1, 0, +1 with its scale in a tensor of its own.

    TQ1_0 and TQ2_0 have half-precision scales. A scale that they would round changes which way
    activations round to int8, and logits by a tenth or so. The mean of master weights is hardly
    ever such a number; bfloat16 scales of packed weights are. The feed-forward's biases would be
    scaled too, so weights beside one stay as they are.
    """
    if ternary is None or needed.kind != "linear" or type_name not in _HALF_SCALES:
        return False
    if needed.has_bias and ".ffn_" in needed.name:
        return False
    if not ternary.packed:
        return True
    scale = weight_scale(needed, ternary, checkpoint)
    with np.errstate(over="ignore"):  # then it is infinite in half precision, so another number
        return bool(np.float32(np.float16(scale)) != scale)


def tensor_data(
    needed: HFTensor,
    type_name: str,
    ternary: Ternary | None,
    checkpoint: Checkpoint,
    scales: dict[str, np.float32],
) -> Callable[[], Iterator[Chunk]]:
    """A function for GGUFWriter that makes the tensor's chunks.

    Weights that are keys of ``scales`` are written bare, and their scales put there.
    """
    if needed.stored.blocks:
        return partial(read_blocks, needed, checkpoint)
    if ternary is not None and needed.kind == "linear":
        return partial(_ternary_chunks, needed, type_name, ternary, checkpoint, scales)
    return partial(_float_chunks, needed, type_name, checkpoint)


def _ternary_chunks(
    needed: HFTensor,
    type_name: str,
    ternary: Ternary,
    checkpoint: Checkpoint,
    scales: dict[str, np.float32],
) -> Iterator[Chunk]:
    matrix = read_ternary(needed, ternary, checkpoint)
    if needed.name in scales:
        scales[needed.name] = matrix.scale
        matrix = TernaryMatrix(matrix.codes, np.float32(1))
    rows, columns = needed.shape
    if type_name == "I2_S":
        blocks = matrix.codes.reshape(-1, _CODES_PER_BLOCK)
        for first in range(0, len(blocks), _CHUNK_ELEMENTS // _CODES_PER_BLOCK):
            yield pack_codes(blocks[first : first + _CHUNK_ELEMENTS // _CODES_PER_BLOCK])
        tail = np.zeros(8, "<f4")
        tail[0] = matrix.scale
        yield tail
        return
    step = max(1, _CHUNK_ELEMENTS // columns)
    for first in range(0, rows, step):
        yield TYPES[type_name].quantize(matrix.floats(first, first + step))


def _float_chunks(needed: HFTensor, type_name: str, checkpoint: Checkpoint) -> Iterator[Chunk]:
    for values in read_floats(needed, checkpoint):
        encoded = TYPES[type_name].quantize(values)
        if type_name == "F16" and not np.isfinite(encoded.view("<f2")).all():
            raise InputError(
                f"{checkpoint.directory}: tensor {needed.source!r} has values up to "
                f"{float(np.abs(values).max()):.3g}, beyond half precision; use --outtype bf16 or "
                "f32"
            )
        yield encoded
