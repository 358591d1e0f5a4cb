"""quant_method gptq: ``X.qweight``, ``X.qzeros``, ``X.scales`` and ``X.g_idx``.

qweight is I32, (inputs * bits / 32, outputs): a word holds neighbouring inputs, lowest bits first.
qzeros is I32, (groups, outputs * bits / 32), scales floats, (groups, outputs). checkpoint_format
"gptq" stores zero points less 1, "gptq_v2" as they are. Sources: AutoGPTQ, qlinear_cuda_old.py;
GPTQModel, utils/model.py (convert_gptq_v1_to_v2_format).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trinity.errors import ConfigError, FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed import integers
from trinity.formats.huggingface.packed.weight import Bytes, Packed, PackedWeights, Part
from trinity.formats.huggingface.values import Values, shown
from trinity.formats.safetensors import SafeTensor

_FORMATS = {"gptq": 1, "gptq_v2": 0}  # how much less zero points are stored
_WEIGHT, _PARTS = ".qweight", (".qzeros", ".scales")


def find(checkpoint: Checkpoint, config: Values) -> PackedWeights:
    """Find the weights with a qweight.

    Raises FormatError for tensors that are missing or do not fit together, ConfigError for a width
    that contradicts the tensors, UnsupportedError for other formats, widths and orders.
    """
    form = config.text("checkpoint_format", "gptq")
    if form not in _FORMATS:
        raise UnsupportedError(
            f"{config.source}: checkpoint_format is {shown(form)}; trinity reads "
            f"{' and '.join(_FORMATS)}: use the unquantized model"
        )
    weights: dict[str, Packed] = {}
    used: set[str] = set()
    for module, tensors in modules(checkpoint, _PARTS):
        weight = _weight(module, tensors, _FORMATS[form], config)
        weights[weight.name] = weight
        used.update(tensors)
    return PackedWeights(weights, frozenset(used))


def modules(
    checkpoint: Checkpoint, parts: tuple[str, ...]
) -> list[tuple[str, dict[str, SafeTensor]]]:
    """Return the modules with a qweight, and the tensors of each by name, with g_idx.

    Raises FormatError if one of ``parts``, or their qweight, is missing.
    """
    names = set(checkpoint.names())
    listed = []
    for name in checkpoint.names():
        module = next((name.removesuffix(p) for p in parts if name.endswith(p)), None)
        if module is not None and module + _WEIGHT not in names:
            raise FormatError(
                f"{checkpoint.tensor(name).source}: there is a tensor {name!r}, but no "
                f"{module + _WEIGHT!r}; the checkpoint is incomplete or of another method"
            )
        if not name.endswith(_WEIGHT):
            continue
        module = name.removesuffix(_WEIGHT)
        missing = [module + part for part in parts if module + part not in names]
        if missing:
            raise FormatError(
                f"{checkpoint.tensor(name).source}: tensor {name!r} holds codes, but there is no "
                f"{missing[0]!r}; the checkpoint is incomplete or of another method"
            )
        own = (name, *(module + part for part in (*parts, ".g_idx")))
        listed.append((module, {n: checkpoint.tensor(n) for n in own if n in names}))
    return listed


def bits_of(codes: SafeTensor, zeros: SafeTensor, scales: SafeTensor, config: Values) -> int:
    """Return the bits of a code, from the shapes of zero points and scales.

    Raises FormatError if they are inconsistent, ConfigError if config.json contradicts them.
    """
    if len(codes.shape) != 2 or len(scales.shape) != 2 or len(zeros.shape) != 2:
        raise FormatError(
            f"{codes.source}: tensor {codes.name!r} has shape {codes.shape}, {scales.name!r} "
            f"{scales.shape} and {zeros.name!r} {zeros.shape}; expected matrices: the files are "
            "damaged"
        )
    outputs = scales.shape[1]
    said = config.values.get("bits", config.values.get("w_bit"))
    if said in integers.BITS and -(-outputs * said // 32) == zeros.shape[1]:
        return int(said)
    bits = 32 * zeros.shape[1] // max(1, outputs)
    if bits * outputs != 32 * zeros.shape[1] or not 1 <= bits <= 8:
        raise FormatError(
            f"{zeros.source}: tensor {zeros.name!r} has shape {zeros.shape}, but its scales have "
            f"shape {scales.shape}; expected 1 to 8 bits for each scale: the files are damaged"
        )
    if bits not in integers.BITS:
        raise UnsupportedError(
            f"{codes.source}: tensor {codes.name!r} has codes of {bits} bits; trinity reads 2, 4 "
            "and 8: use the unquantized model"
        )
    if said not in (None, bits) and not config.has("dynamic"):
        raise ConfigError(
            f"{config.source}: bits is {shown(said)}, but {codes.name!r} and its companions have "
            f"{bits}: config.json and the files belong to different models"
        )
    return bits


def _weight(module: str, tensors: dict[str, SafeTensor], less: int, config: Values) -> Packed:
    codes, zeros, scales = (tensors[module + part] for part in (_WEIGHT, *_PARTS))
    bits = bits_of(codes, zeros, scales, config)
    groups, outputs = scales.shape
    inputs = codes.shape[0] * 32 // bits
    integers.expect(codes, ("I32",), (inputs * bits // 32, outputs))
    integers.expect(zeros, ("I32",), (groups, -(-outputs * bits // 32)))
    integers.expect(scales, integers.FLOATS, (groups, outputs))
    integers.check_groups(scales, inputs, groups)
    if f"{module}.g_idx" in tensors:
        integers.check_order(tensors[f"{module}.g_idx"], inputs, groups)
    return Packed(
        f"{module}.weight", (outputs, inputs), integers.type_of(bits, inputs, groups), codes.source,
        partial(row_numbers, outputs),
        partial(_pack, bits, less, codes, zeros, scales),
    )  # fmt: skip


def row_numbers(count: int) -> tuple[Part]:
    """Return row numbers, which look up rows that are stored along another axis."""
    return (np.arange(count)[:, None],)


def _pack(
    bits: int, less: int, codes: SafeTensor, zeros: SafeTensor, scales: SafeTensor, numbers: Part
) -> Bytes:
    """Return rows of AFFINE types for the outputs ``numbers`` (rows, 1)."""
    rows = np.asarray(numbers[:, 0], np.int64)
    first, end = int(rows[0]), int(rows[-1]) + 1
    turned = np.ascontiguousarray(integers.words(codes)[:, first:end].T)[rows - first]
    shifts = (rows * bits % 32).astype(np.uint32)
    stored = integers.words(zeros)[:, rows * bits // 32] >> shifts
    # The sum wraps around: a zero point of 0 is stored as the largest code.
    zero = stored + np.uint32(less) & np.uint32((1 << bits) - 1)
    return integers.rows_of_blocks(
        bits, scales, turned.view(np.uint8), scales.elements()[:, rows].T, zero.T
    )
