"""quant_method awq, version gemm: ``X.qweight``, ``X.qzeros``, ``X.scales``.

qweight is I32, (inputs, outputs / 8): a word holds eight neighbouring outputs, nibble n, from the
lowest, the output _ORDER[n]. qzeros is I32, (groups, outputs / 8), in the same order, scales
floats, (groups, outputs). Source: AutoAWQ, modules/linear/gemm.py and utils/packing_utils.py.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trinity.errors import UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.gptq import bits_of, modules, row_numbers
from trinity.formats.huggingface.packed.integers import (
    FLOATS,
    check_groups,
    expect,
    rows_of_blocks,
    type_of,
)
from trinity.formats.huggingface.packed.weight import Bytes, Packed, PackedWeights, Part
from trinity.formats.huggingface.values import Values, shown
from trinity.formats.safetensors import SafeTensor

_BITS, _EACH = 4, 8
# Of a word's bytes the outputs of the lower and of the upper halves.
_LOW, _HIGH = (0, 4, 1, 5), (2, 6, 3, 7)
_PARTS = (".qzeros", ".scales")


def find(checkpoint: Checkpoint, config: Values) -> PackedWeights:
    """Find the weights with a qweight.

    Raises FormatError for tensors that are missing or do not fit together, ConfigError for a width
    that contradicts the tensors, UnsupportedError for other versions and widths.
    """
    version = config.text("version", "gemm")
    if version.lower() != "gemm":
        raise UnsupportedError(
            f"{config.source}: version is {shown(version)}; trinity reads gemm: take a checkpoint "
            "of that version, or the unquantized model"
        )
    weights = [_weight(module, tensors, config) for module, tensors in modules(checkpoint, _PARTS)]
    names = [f"{w.name.removesuffix('.weight')}{p}" for w in weights for p in (".qweight", *_PARTS)]
    return PackedWeights({weight.name: weight for weight in weights}, frozenset(names))


def _weight(module: str, tensors: dict[str, SafeTensor], config: Values) -> Packed:
    codes, zeros, scales = (tensors[module + part] for part in (".qweight", *_PARTS))
    bits = bits_of(codes, zeros, scales, config)
    if bits != _BITS:
        raise UnsupportedError(
            f"{codes.source}: tensor {codes.name!r} has codes of {bits} bits; trinity reads 4 of "
            "AWQ: use the unquantized model"
        )
    groups, outputs = scales.shape
    inputs = codes.shape[0]
    expect(codes, ("I32",), (inputs, outputs // _EACH))
    expect(zeros, ("I32",), (groups, outputs // _EACH))
    expect(scales, FLOATS, (groups, outputs))
    check_groups(scales, inputs, groups)
    return Packed(
        f"{module}.weight", (outputs, inputs), type_of(bits, inputs, groups), codes.source,
        partial(row_numbers, outputs), partial(_pack, codes, zeros, scales),
    )  # fmt: skip


def _pack(codes: SafeTensor, zeros: SafeTensor, scales: SafeTensor, numbers: Part) -> Bytes:
    """Return rows of AFFINE4_F32 for the outputs ``numbers`` (rows, 1)."""
    rows = np.asarray(numbers[:, 0], np.int64)
    first, end = int(rows[0]) // _EACH, int(rows[-1]) // _EACH + 1
    own = rows - _EACH * first
    # (words, 4, inputs): a byte has two outputs of an input.
    turned = np.ascontiguousarray(_bytes(codes)[:, first:end].transpose(1, 2, 0))
    even, odd = turned[:, :, 0::2], turned[:, :, 1::2]
    pairs = np.empty((end - first, _EACH, even.shape[2]), np.uint8)
    pairs[:, _LOW] = even & np.uint8(15) | odd << np.uint8(4)
    pairs[:, _HIGH] = even >> np.uint8(4) | odd & np.uint8(0xF0)
    packed = _bytes(zeros)[:, first:end]
    zero = np.empty((len(packed), end - first, _EACH), np.uint8)
    zero[:, :, _LOW], zero[:, :, _HIGH] = packed & np.uint8(15), packed >> np.uint8(4)
    return rows_of_blocks(
        _BITS, scales, pairs.reshape(-1, pairs.shape[2])[own], scales.elements()[:, rows].T,
        zero.reshape(len(packed), -1)[:, own].T,
    )  # fmt: skip


def _bytes(tensor: SafeTensor) -> Bytes:
    """Return words as bytes (rows, words, 4)."""
    return tensor.data.reshape(*tensor.shape, 4)
