"""Encode each tensor in the chosen type, chunk by chunk, when it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from math import prod

import numpy as np

from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.formats.gguf_order import is_precise
from trinity.formats.gguf_writer import Chunk
from trinity.formats.provider import Tensor
from trinity.formats.ternary_tensor import CODES_PER_BLOCK, TernaryMatrix, TernaryTensor
from trinity_kernels.quants import TYPES, dequantize

# --outtype: the type of the layers' weights, and general.file_type (llama.cpp's llama_ftype, and
# bitnet.cpp's for I2_S).
OUTTYPES = {
    "i2_s": ("I2_S", 40),
    "tq1_0": ("TQ1_0", 36),
    "tq2_0": ("TQ2_0", 37),
    "f16": ("F16", 1),
    "bf16": ("BF16", 32),
    "f32": ("F32", 0),
    "q8_0": ("Q8_0", 7),
}
# Block types that are kept, and general.file_type of a file that contains some, whatever the float
# type of the rest.
KEPT_TYPES = {"MXFP4": 38, "NVFP4": 39}
_CHUNK_ELEMENTS = 1 << 22
_VALUES = re.compile(r"\.attn_(v|qkv)\.weight$")
_HALF_SCALES = ("TQ1_0", "TQ2_0")
_MATRICES = ("token_embd.weight", "output.weight", "per_layer_token_embd.weight")


def file_type(outtype: str, types: Iterable[str]) -> int:
    """Return general.file_type for a file whose tensors have these types."""
    kept = [number for name, number in KEPT_TYPES.items() if name in set(types)]
    if kept and outtype in ("f32", "f16", "bf16"):
        return kept[0]
    return OUTTYPES[outtype][1]


def own_type(tensors: Iterable[Tensor]) -> str:
    """Return the key of OUTTYPES that keeps the layers' values and takes the least space."""
    types = {tensor.type for tensor in tensors if not is_precise(tensor.name, tensor.shape)}
    if "I2_S" in types:
        return "i2_s"
    floats = types - set(KEPT_TYPES)
    return {("F16",): "f16", ("BF16",): "bf16", (): "bf16"}.get(tuple(floats), "f32")


def chosen_type(tensor: Tensor, outtype: str, *, encodes: bool = False) -> str:
    """Return the type that ``tensor`` gets.

    As in llama.cpp and Microsoft's file: norms, biases and routers are F32; the embedding and the
    output of files with ternary types are F16; so are rows that do not fit Q8_0's blocks; blocks of
    MXFP4 and NVFP4 are kept. In Q8_0 files of encoders (``encodes``) attn_v is F16: llama.cpp
    rounds the inputs of Q8_0 weights, and vectors of the shortest texts changed by more than 0.001
    (cosine). Raises UnsupportedError for a matrix that a ternary type cannot store.
    """
    wanted = OUTTYPES[outtype][0]
    name = tensor.name
    if is_precise(name, tensor.shape):
        return "F32"
    if tensor.type in KEPT_TYPES:
        return tensor.type
    quant = TYPES[wanted]
    if quant.ternary and name in _MATRICES:
        return "F16"
    columns = tensor.shape[-1]
    if wanted == "I2_S" and prod(tensor.shape) % CODES_PER_BLOCK:
        raise UnsupportedError(_misfit(tensor, wanted, "a multiple of 128 weights in a matrix"))
    if wanted in _HALF_SCALES and columns % quant.block_size:
        raise UnsupportedError(
            _misfit(tensor, wanted, f"rows of a multiple of {quant.block_size} weights")
            + "; --outtype i2_s supports it"
        )
    if wanted == "Q8_0" and (columns % quant.block_size or (encodes and _VALUES.search(name))):
        return "F16"
    return wanted


def _misfit(tensor: Tensor, wanted: str, needs: str) -> str:
    return f"{wanted} needs {needs}, but {tensor.where} has the shape {tensor.shape}"


def needs_scale_tensor(tensor: Tensor, type_name: str, names: Collection[str]) -> bool:
    """Whether the weight is written as -1, 0, +1 with its scale in a separate tensor.

    TQ1_0 and TQ2_0 have half-precision scales. If they rounded the scale, activations would round
    differently to int8, which changes logits by a tenth or so. The mean of master weights hardly
    ever fits half precision; bfloat16 scales of packed weights do. A scale would also apply to the
    feed-forward's biases, so weights with one (by ``names``) are excluded.
    """
    if not isinstance(tensor, TernaryTensor) or type_name not in _HALF_SCALES:
        return False
    if ".ffn_" in tensor.name and f"{tensor.name.removesuffix('weight')}bias" in names:
        return False
    scale = tensor.known_scale
    if scale is None:
        return True
    with np.errstate(over="ignore"):  # infinite in half precision, so it differs
        return bool(np.float32(np.float16(scale)) != scale)


def tensor_data(
    tensor: Tensor, type_name: str, scales: dict[str, np.float32]
) -> Callable[[], Iterator[Chunk]]:
    """Return a function for GGUFWriter that computes the tensor's chunks.

    Weights that are keys of ``scales`` are written as -1, 0, +1, and their scales are stored there.
    """
    if tensor.type in KEPT_TYPES and tensor.type == type_name:
        return partial(tensor.pieces, _CHUNK_ELEMENTS)
    if isinstance(tensor, TernaryTensor):
        return partial(_ternary_chunks, tensor, type_name, scales)
    return partial(_float_chunks, tensor, type_name)


def _ternary_chunks(
    tensor: TernaryTensor, type_name: str, scales: dict[str, np.float32]
) -> Iterator[Chunk]:
    matrix = tensor.matrix()
    if tensor.name in scales:
        scales[tensor.name] = matrix.scale
        matrix = TernaryMatrix(matrix.codes, np.float32(1))
    if type_name == "I2_S":
        yield from matrix.i2_s()
        return
    rows, columns = tensor.shape
    step = max(1, _CHUNK_ELEMENTS // columns)
    for first in range(0, rows, step):
        yield TYPES[type_name].quantize(matrix.floats(first, first + step))


def _float_chunks(tensor: Tensor, type_name: str) -> Iterator[Chunk]:
    quant = TYPES[tensor.type]
    for piece in tensor.pieces(_CHUNK_ELEMENTS * quant.type_size // quant.block_size):
        elements = len(piece) // quant.type_size * quant.block_size
        columns = tensor.shape[-1] if len(tensor.shape) > 1 else elements
        values = dequantize(tensor.type, piece, (elements // columns, columns))
        if not np.isfinite(values).all():
            raise FormatError(
                f"{tensor.where} has values that are not finite numbers; the checkpoint is damaged"
            )
        encoded = TYPES[type_name].quantize(values)
        if type_name == "F16" and not np.isfinite(encoded.view("<f2")).all():
            raise InputError(
                f"{tensor.where} has values up to {float(np.abs(values).max()):.3g}, beyond the "
                "range of half precision; use --outtype bf16 or f32"
            )
        yield encoded
