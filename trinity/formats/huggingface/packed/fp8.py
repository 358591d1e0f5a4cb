"""quant_method fp8: codes of E4M3 under one scale for a block, a row or a whole weight.

``X`` is F8_E4M3, (..., rows, columns), and ``X_scale_inv`` multiplies despite its name. Source:
transformers, integrations/finegrained_fp8.py (Fp8Dequantize); DeepSeek-V3's README_WEIGHTS.md.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed.ignored import ignored
from trinity.formats.huggingface.packed.weight import Bytes, Packed, PackedWeights, Part
from trinity.formats.huggingface.values import Values, shown
from trinity.formats.safetensors import SafeTensor

BLOCK = 32  # elements under one scale in the type FP8
CODES = "F8_E4M3"
_SCALE = "_scale_inv"
_FLOATS = ("F32", "F16", "BF16")
_USUAL_BLOCK = (128, 128)
_DAMAGED = "the checkpoint is damaged: download it again"


def find(checkpoint: Checkpoint, config: Values) -> PackedWeights:
    """Find the weights that have a scale.

    Raises FormatError for codes without scales, scales without codes and shapes that do not fit
    together, ConfigError for an invalid weight_block_size, UnsupportedError for other codes.
    """
    block = _block_size(config)
    names = set(checkpoint.names())
    weights: dict[str, Packed] = {}
    used, notes = ignored(checkpoint)
    for name in checkpoint.names():
        codes = checkpoint.tensor(name)
        if codes.dtype != CODES:
            continue
        if name + _SCALE not in names:
            raise FormatError(
                f"{codes.source}: tensor {name!r} is {CODES}, but there is no {name + _SCALE!r}, "
                "by which its codes are multiplied; the checkpoint is incomplete"
            )
        used |= {name, name + _SCALE}
        weights[name] = scaled_codes(name, codes, checkpoint.tensor(name + _SCALE), block)
    for name in names - used:
        if name.endswith(_SCALE):
            weight = name.removesuffix(_SCALE)
            what = checkpoint.tensor(weight).dtype if weight in names else "not there"
            raise FormatError(
                f"{checkpoint.tensor(name).source}: tensor {name!r} is a scale of {weight!r}, "
                f"which is {what}; expected {CODES}: the files belong to different models"
            )
    return PackedWeights(weights, frozenset(used), notes)


def scaled_codes(
    name: str, codes: SafeTensor, scales: SafeTensor, block: tuple[int, int] | None
) -> Packed:
    """Return the weight ``name``: E4M3 codes times scales.

    The scales' shape tells what each belongs to: the whole weight, a row ((rows, 1) or (rows,)),
    equal groups of a row (rows, groups), or a ``block`` of (rows, columns), which is smaller at the
    edges. Raises FormatError for another shape, UnsupportedError for other dtypes and groups.
    """
    where = f"{codes.source}: tensor {codes.name!r}"
    if codes.dtype != CODES or len(codes.shape) < 2 or 0 in codes.shape:
        raise FormatError(
            f"{where} is {codes.dtype} of shape {codes.shape}; expected codes of {CODES} in rows "
            f"and columns: {_DAMAGED}"
        )
    *leading, rows, columns = codes.shape
    if columns % BLOCK:
        raise UnsupportedError(
            f"{where} has rows of {columns} weights; trinity multiplies {CODES} in blocks of "
            f"{BLOCK}: use the unquantized model"
        )
    if scales.dtype not in (*_FLOATS, "F8_E8M0"):
        raise UnsupportedError(
            f"{scales.source}: tensor {scales.name!r} is {scales.dtype}; expected scales in F32, "
            "F16, BF16 or F8_E8M0"
        )
    count = int(np.prod(scales.shape))
    ahead = int(np.prod(leading))
    each_block = (
        None if block is None else (*leading, -(-rows // block[0]), -(-columns // block[1]))
    )
    if block is not None and scales.shape == each_block:
        height, width = min(block[0], rows), min(block[1], columns)
    elif scales.shape == (*leading, rows):
        height, width = 1, columns
    elif _are_groups(scales.shape, codes.shape):
        height, width = 1, columns // scales.shape[-1]
    elif count == ahead and (not leading or scales.shape[: len(leading)] == tuple(leading)):
        height, width = rows, columns
    else:
        expected = "" if each_block is None else f"{each_block} for blocks of {block}, "
        raise FormatError(
            f"{scales.source}: tensor {scales.name!r} has shape {scales.shape}; for codes of shape "
            f"{codes.shape} expected {expected}{(*leading, rows, 1)} for rows or one for all: "
            "config.json and the files belong to different models, or the files are damaged"
        )
    if width % BLOCK and width < columns:
        raise UnsupportedError(
            f"{scales.source}: tensor {scales.name!r} has a scale for each {width} weights of a "
            f"row; trinity multiplies {CODES} in blocks of {BLOCK}"
        )
    across = -(-columns // width)
    return Packed(
        name, codes.shape, "FP8", codes.source,
        partial(_parts, codes, scales, height),
        partial(_pack, codes, scales, across, width),
    )  # fmt: skip


def _are_groups(shape: tuple[int, ...], of: tuple[int, ...]) -> bool:
    same = len(shape) == len(of) and shape[:-1] == of[:-1]
    return same and shape[-1] > 0 and of[-1] % shape[-1] == 0


def _parts(codes: SafeTensor, scales: SafeTensor, height: int) -> tuple[Part, ...]:
    """Return the codes, and for each row the number of its row of scales."""
    *leading, rows, _ = codes.shape
    tall = -(-rows // height)
    starts = np.arange(int(np.prod(leading)), dtype=np.int64)[:, None] * tall
    numbers = starts + np.arange(rows)[None, :] // height
    return codes.elements(), numbers.reshape(*leading, rows, 1)


def _pack(
    tensor: SafeTensor, scales: SafeTensor, across: int, width: int, codes: Bytes, numbers: Part
) -> Bytes:
    """Return blocks of FP8, (rows, columns / 32 * 36) bytes."""
    if ((codes & np.uint8(0x7F)) == 0x7F).any():
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has codes that are NaN; {_DAMAGED}"
        )
    rows, columns = codes.shape
    values = scale_values(scales, scales.elements().reshape(-1, across)[numbers[:, 0]])
    blocks = np.empty((rows, columns // BLOCK, 4 + BLOCK), np.uint8)
    first = np.arange(columns // BLOCK) * BLOCK // width  # the scale of a block
    blocks[:, :, :4] = np.ascontiguousarray(values[:, first]).view(np.uint8).reshape(rows, -1, 4)
    blocks[:, :, 4:] = codes.reshape(rows, -1, BLOCK)
    return blocks.reshape(rows, -1)


def scale_values(tensor: SafeTensor, elements: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return a tensor of scales as float32. Raises FormatError if one is not finite."""
    if tensor.dtype == "F8_E8M0":
        # The exponent of a float32; 0 is the subnormal 2 ** -127, 255 no number.
        bits = elements.astype(np.uint32) << 23
        values = np.where(bits == 0, np.uint32(1 << 22), bits).view(np.float32)
    else:
        values = tensor.floats(elements)
    if not np.isfinite(values).all():
        bad = float(values[~np.isfinite(values)][0])
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has the scale {bad}; expected finite "
            f"numbers: {_DAMAGED}"
        )
    return values


def _block_size(config: Values) -> tuple[int, int] | None:
    """Return weight_block_size, or None if it is null: one scale for a row or for all."""
    if config.text("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):
        raise UnsupportedError(
            f"{config.source}: fmt is {shown(config.values['fmt'])}; trinity reads e4m3"
        )
    given = config.values.get("weight_block_size", list(_USUAL_BLOCK))
    if given is None:
        return None
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in given)
    ):
        raise ConfigError(
            f"{config.source}: weight_block_size is {shown(given)}; expected two whole numbers "
            "above 0, the rows and columns of a block"
        )
    return given[0], given[1]
