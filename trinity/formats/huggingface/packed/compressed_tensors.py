"""quant_method compressed-tensors: what llm-compressor writes; each module's tensors tell how.

- ``X.weight`` F8_E4M3 or I8, (rows, columns), with ``X.weight_scale``.
- ``X.weight_packed`` I32, (rows, columns * bits / 32), lowest bits first, codes moved up to be
  unsigned, with ``X.weight_scale``, (rows, groups), ``X.weight_shape`` and perhaps
  ``X.weight_zero_point``, packed as the codes but along the rows, and ``X.weight_g_idx``.
- ``X.weight_packed`` U8, NVFP4 with ``X.weight_global_scale``, which divides, or MXFP4 without.

Source: compressed-tensors, compressors/ (pack_quantized, nvfp4, mxfp4, naive_quantized).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed import integers, mlx_blocks
from trinity.formats.huggingface.packed.fp8 import CODES, scaled_codes
from trinity.formats.huggingface.packed.ignored import ignored
from trinity.formats.huggingface.packed.nvfp4 import nvfp4_weight
from trinity.formats.huggingface.packed.weight import Bytes, Packed, PackedWeights, Part
from trinity.formats.huggingface.values import Values, shown
from trinity.formats.safetensors import SafeTensor

_FORMATS = (
    "dense", "float-quantized", "int-quantized", "naive-quantized", "pack-quantized",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision",
)  # fmt: skip
_SCALE, _SHAPE = ".weight_scale", ".weight_shape"
_ZERO, _ORDER, _WHOLE = ".weight_zero_point", ".weight_g_idx", ".weight_global_scale"
_MX_GROUP = 32


def find(checkpoint: Checkpoint, config: Values) -> PackedWeights:
    """Find the weights that have a scale.

    Raises FormatError for tensors that are missing or do not fit together, UnsupportedError for
    other formats, widths and orders.
    """
    _check(config)
    block = _block_structure(config)
    used, notes = ignored(checkpoint)
    names = set(checkpoint.names())
    weights: dict[str, Packed] = {}
    for name in checkpoint.names():
        if name.endswith(".weight_packed") and f"{_module(name)}{_SCALE}" not in names:
            raise FormatError(
                f"{checkpoint.tensor(name).source}: tensor {name!r} holds codes, but there is no "
                f"{_module(name) + _SCALE!r}; the checkpoint is incomplete"
            )
        if not name.endswith(_SCALE):
            continue
        module = _module(name)
        own = [f"{module}{end}" for end in (".weight", ".weight_packed")]
        held = [n for n in own if n in names]
        if len(held) != 1:
            raise FormatError(
                f"{checkpoint.tensor(name).source}: for the tensor {name!r} there "
                f"{'are both' if held else 'is neither'} {own[0]!r} {'and' if held else 'nor'} "
                f"{own[1]!r}; expected one of them: the files belong to different models"
            )
        parts = {
            end: checkpoint.tensor(module + end)
            for end in (_SCALE, _SHAPE, _ZERO, _ORDER, _WHOLE)
            if module + end in names
        }
        codes = checkpoint.tensor(held[0])
        weights[own[0]] = _weight(own[0], codes, parts, block)
        used |= {held[0], *(module + end for end in parts)}
    return PackedWeights(weights, frozenset(used), notes)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _weight(
    name: str, codes: SafeTensor, parts: dict[str, SafeTensor], block: tuple[int, int] | None
) -> Packed:
    scales = parts[_SCALE]
    if codes.dtype == "I32":
        return _packed(name, codes, parts)
    for end in (_ZERO, _ORDER):
        if end in parts:
            raise UnsupportedError(
                f"{codes.source}: there is a tensor {parts[end].name!r} for codes of "
                f"{codes.dtype}; trinity supports it only for packed codes of I32: use the "
                "unquantized model"
            )
    if codes.dtype == CODES:
        return scaled_codes(name, codes, scales, block)
    if codes.dtype == "I8":
        return _int8(name, codes, scales)
    if _WHOLE in parts:
        return nvfp4_weight(name, codes, scales, parts[_WHOLE], divides=True)
    return _mxfp4(name, codes, scales)


def _packed(name: str, codes: SafeTensor, parts: dict[str, SafeTensor]) -> Packed:
    """Return codes of 2, 4 or 8 bits from words."""
    scales = parts[_SCALE]
    if _SHAPE not in parts or len(codes.shape) != 2 or len(scales.shape) != 2:
        raise FormatError(
            f"{codes.source}: tensor {codes.name!r} has shape {codes.shape}, its scales "
            f"{scales.shape}; expected matrices and a weight_shape: the files are damaged"
        )
    rows, columns = _shape(parts[_SHAPE])
    bits = 32 * codes.shape[1] // columns
    if bits not in integers.BITS or bits * columns != 32 * codes.shape[1]:
        raise UnsupportedError(
            f"{codes.source}: tensor {codes.name!r} has {codes.shape[1]} words for {columns} codes "
            f"of a row; trinity reads codes of {', '.join(map(str, integers.BITS))} bits: take the "
            "model it was made from"
        )
    integers.expect(codes, ("I32",), (rows, columns * bits // 32))
    groups = scales.shape[1]
    integers.expect(scales, integers.FLOATS, (rows, groups))
    integers.check_groups(scales, columns, groups)
    zeros = parts.get(_ZERO)
    if zeros is not None:
        integers.expect(zeros, ("I32",), (-(-rows * bits // 32), groups))
    if _ORDER in parts:
        integers.check_order(parts[_ORDER], columns, groups)
    return Packed(
        name, (rows, columns), integers.type_of(bits, columns, groups), codes.source,
        partial(_parts, codes, scales),
        partial(_pack, bits, scales, zeros),
    )  # fmt: skip


def _shape(tensor: SafeTensor) -> tuple[int, int]:
    if tensor.dtype in ("I64", "I32") and tensor.shape == (2,):
        rows, columns = tensor.data.view("<i8" if tensor.dtype == "I64" else "<i4").tolist()
        if rows > 0 and columns > 0:
            return rows, columns
    raise FormatError(
        f"{tensor.source}: tensor {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}; "
        "expected two whole numbers above 0, rows and columns: the files are damaged"
    )


def _parts(codes: SafeTensor, scales: SafeTensor) -> tuple[Part, ...]:
    rows = codes.shape[0]
    return codes.data.reshape(rows, -1), scales.elements(), np.arange(rows)[:, None]


def _pack(
    bits: int, scales: SafeTensor, zeros: SafeTensor | None, codes: Bytes, d: Part, numbers: Part
) -> Bytes:
    """Return rows of AFFINE types. Codes and zero points are shifted alike."""
    if zeros is None:
        return integers.rows_of_blocks(bits, scales, codes, d, 1 << (bits - 1))
    rows = numbers[:, 0]
    shifts = (rows * bits % 32).astype(np.uint32)[:, None]
    zero = integers.words(zeros)[rows * bits // 32] >> shifts & np.uint32((1 << bits) - 1)
    return integers.rows_of_blocks(bits, scales, codes, d, zero)


def _int8(name: str, codes: SafeTensor, scales: SafeTensor) -> Packed:
    if len(codes.shape) != 2 or 0 in codes.shape:
        raise FormatError(
            f"{codes.source}: tensor {codes.name!r} has shape {codes.shape}; expected a matrix of "
            "codes: the files are damaged"
        )
    rows, columns = codes.shape
    groups = scales.shape[1] if len(scales.shape) == 2 else 1
    if scales.shape in ((), (1,), (1, 1)):
        integers.expect(scales, integers.FLOATS, scales.shape)
    else:
        integers.expect(scales, integers.FLOATS, (rows, groups)[: len(scales.shape)])
    integers.check_groups(scales, columns, groups)

    def parts() -> tuple[Part, ...]:
        given = scales.elements().reshape(-1, groups)
        return codes.elements(), np.broadcast_to(given, (rows, groups))

    kind = integers.type_of(8, columns, groups)
    return Packed(name, (rows, columns), kind, codes.source, parts, partial(_pack8, scales))


def _pack8(scales: SafeTensor, codes: Bytes, d: Part) -> Bytes:
    return integers.rows_of_blocks(8, scales, codes ^ np.uint8(0x80), d, 128)


def _mxfp4(name: str, codes: SafeTensor, scales: SafeTensor) -> Packed:
    if codes.dtype != "U8" or len(codes.shape) != 2 or 0 in codes.shape:
        raise FormatError(
            f"{codes.source}: tensor {codes.name!r} is {codes.dtype} of shape {codes.shape}; "
            f"expected {CODES} or I8 for rows and columns, or packed codes of I32 or U8: the files "
            "are damaged"
        )
    rows, columns = codes.shape[0], 2 * codes.shape[1]
    integers.expect(scales, ("U8", "F8_E8M0"), (rows, columns // _MX_GROUP))
    integers.check_groups(scales, columns, scales.shape[1])

    def parts() -> tuple[Part, ...]:
        return codes.elements(), scales.elements()

    pack = partial(mlx_blocks.mxfp4, scales)
    return Packed(name, (rows, columns), "MXFP4", codes.source, parts, pack)


def _check(config: Values) -> None:
    form = config.text("format", "dense")
    if form not in _FORMATS:
        raise UnsupportedError(
            f"{config.source}: format is {shown(form)}; trinity reads {', '.join(_FORMATS)}: take "
            "the unquantized model"
        )
    sparse = config.inner("sparsity_config").text("format", "dense")
    if sparse != "dense":
        raise UnsupportedError(
            f"{config.source}: sparsity_config has the format {shown(sparse)}; trinity reads "
            "weights that are not sparse: use the unquantized model"
        )


def _block_structure(config: Values) -> tuple[int, int] | None:
    """Return the rows and columns of a block with one scale, if a group of modules has some."""
    for group in config.inner("config_groups").values.values():
        weights = group.get("weights") if isinstance(group, dict) else None
        structure = weights.get("block_structure") if isinstance(weights, dict) else None
        if isinstance(structure, str):
            structure = [int(n) if n.isdecimal() else 0 for n in structure[:20].split("x")]
        if isinstance(structure, list) and len(structure) == 2:
            rows, columns = structure
            if isinstance(rows, int) and isinstance(columns, int) and rows > 0 and columns > 0:
                return rows, columns
    return None
