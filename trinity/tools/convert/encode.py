"""The bytes of each tensor in the chosen type, chunk by chunk, made only when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.gguf_writer import Chunk
from trinity.formats.hf_config import Ternary
from trinity.formats.hf_tensors import HFTensor
from trinity.formats.hf_weights import TernaryMatrix, read_ternary, weight_scale
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
_CHUNK_ELEMENTS = 1 << 22
_CODES_PER_BLOCK = 128
_HALF_SCALES = ("TQ1_0", "TQ2_0")


def chosen_type(needed: HFTensor, outtype: str, ternary: Ternary | None) -> str:
    """The tensor type that ``needed`` gets.

    As llama.cpp and Microsoft's file have it: vectors F32; the embedding and the output of files
    with ternary types F16; F16 too where a row is no whole number of Q8_0's blocks. Raises
    UnsupportedError for a ternary type of a matrix that it cannot hold.
    """
    wanted = OUTTYPES[outtype][0]
    if needed.kind == "vector":
        return "F32"
    quant = TYPES[wanted]
    if quant.ternary and needed.kind == "matrix":
        return "F16"
    rows, columns = needed.shape
    if wanted == "I2_S" and rows * columns % _CODES_PER_BLOCK:
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
    if ternary is not None and needed.kind == "linear":
        return partial(_ternary_chunks, needed, type_name, ternary, checkpoint, scales)
    return partial(_float_chunks, needed, type_name, checkpoint)


def permutation(rows: int, heads: int) -> NDArray[np.intp]:
    """Where each row of a permuted Q or K comes from.

    Within a head, dimension i of the first half and i of the second become 2i and 2i + 1.
    Source: llama.cpp convert_hf_to_gguf.py, LlamaModel.permute.
    """
    order = np.arange(rows).reshape(heads, 2, rows // heads // 2)
    return order.swapaxes(1, 2).reshape(-1)


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
    order = permutation(rows, needed.permuted_heads) if needed.permuted_heads else np.arange(rows)
    if type_name == "I2_S":
        codes = matrix.codes[order] if needed.permuted_heads else matrix.codes
        blocks = codes.reshape(-1, _CODES_PER_BLOCK)
        for first in range(0, len(blocks), _CHUNK_ELEMENTS // _CODES_PER_BLOCK):
            yield pack_codes(blocks[first : first + _CHUNK_ELEMENTS // _CODES_PER_BLOCK])
        tail = np.zeros(8, "<f4")
        tail[0] = matrix.scale
        yield tail
        return
    step = max(1, _CHUNK_ELEMENTS // columns)
    for first in range(0, rows, step):
        yield TYPES[type_name].quantize(matrix.floats(order[first : first + step]))


def _float_chunks(needed: HFTensor, type_name: str, checkpoint: Checkpoint) -> Iterator[Chunk]:
    tensor = checkpoint.tensor(needed.source)  # now, so that a file that has shrunk is noticed
    rows = needed.shape[0]
    columns = needed.shape[1] if len(needed.shape) == 2 else 1
    order = permutation(rows, needed.permuted_heads) if needed.permuted_heads else None
    step = max(1, _CHUNK_ELEMENTS // columns)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        raw = tensor.rows(first, last) if order is None else tensor.rows(0, rows)[order[first:last]]
        values = tensor.floats(raw)
        if not np.isfinite(values).all():
            raise FormatError(
                f"{tensor.source}: tensor {tensor.name!r} has values that are not finite numbers; "
                "the checkpoint is damaged"
            )
        encoded = TYPES[type_name].quantize(values)
        if type_name == "F16" and not np.isfinite(encoded.view("<f2")).all():
            raise InputError(
                f"{tensor.source}: tensor {tensor.name!r} has values up to "
                f"{float(np.abs(values).max()):.3g}, beyond half precision; use --outtype bf16 or "
                "f32"
            )
        yield encoded
