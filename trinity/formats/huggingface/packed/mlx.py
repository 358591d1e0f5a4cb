"""Weights that MLX quantized, in its own directories and in Ollama's tensor blobs.

A weight ``P.weight`` is U32, (..., rows, columns * bits / 32), with scales: floats and as many
biases in mode affine (value = scale * code + bias), bytes in mxfp4, mxfp8 (E8M0) and nvfp4 (E4M3).
That scales are there makes a weight a quantized one; bits, group and mode follow from shapes and
dtypes, given the columns of the model's class. Where config.json names a module and says otherwise,
that is an error. Sources: mlx-lm's utils.py (load_model); Ollama, x/create.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from trinity.errors import ConfigError, FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.packed import mlx_blocks
from trinity.formats.huggingface.packed.weight import Bytes, Packed, PackedWeights, Part
from trinity.formats.huggingface.values import Values, shown
from trinity.formats.safetensors import SafeTensor

CODES = "U32"
_FLOATS = ("BF16", "F16", "F32")
_BITS = (2, 3, 4, 5, 6, 8)
_GROUPS = (32, 64, 128)
# The modes whose scales are bytes, by bits and group.
_FP_MODES = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}
_MODES = ("affine", *_FP_MODES.values())
# MLX's global scale is the largest magnitude, which has the scale 448 and the code 6.
_LARGEST_NVFP4 = 448 * 6
_MISMATCH = "config.json and the files belong to different models, or the files are damaged"


class _Names(NamedTuple):
    """The names of a weight's scales and biases."""

    scales: str
    biases: str
    global_scale: str
    divisor: int


class Settings(NamedTuple):
    """The quantization of a weight."""

    bits: int
    group: int
    mode: str


def is_packed(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has such weights."""
    return any(checkpoint.tensor(name).dtype == CODES for name in checkpoint.names())


def find(checkpoint: Checkpoint, config: Values, columns: Mapping[str, int]) -> PackedWeights:
    """Find the weights in ``columns``; others are left to the model, which refuses them.

    Raises FormatError for companions that are missing or do not fit, ConfigError for settings that
    contradict the tensors, UnsupportedError for other widths, groups and modes.
    """
    named = _named_settings(config)
    present = set(checkpoint.names())
    weights: dict[str, Packed] = {}
    used: set[str] = set()
    for name in checkpoint.names():
        if name not in columns or checkpoint.tensor(name).dtype != CODES:
            continue
        base = name.removesuffix(".weight")
        names = next((n for n in _companions(name, base) if n.scales in present), None)
        codes = checkpoint.tensor(name)
        if names is None:
            raise FormatError(
                f"{codes.source}: tensor {name!r} is {CODES}, codes of a quantized weight, but "
                f"there are no scales, {base + '.scales'!r}; the checkpoint is incomplete"
            )
        companions = {n for n in (names.scales, names.biases, names.global_scale) if n in present}
        scales = checkpoint.tensor(names.scales)
        settings = _settings_of(codes, scales, columns[name])
        if named.get(base, settings) != settings:
            raise ConfigError(
                f"{config.source}: quantization says of {base!r} {_shown(named[base])}; shapes and "
                f"types of its tensors say {_shown(settings)}: {_MISMATCH}"
            )
        tensors = {n: checkpoint.tensor(n) for n in companions}
        weights[name] = _weight(codes, scales, tensors, names, settings, columns[name])
        used |= {name, *companions}
    return PackedWeights(weights, frozenset(used))


def _companions(name: str, base: str) -> tuple[_Names, ...]:
    """Return the companions' names: MLX's, Ollama's, or Ollama's until February 2026."""
    return (
        _Names(f"{base}.scales", f"{base}.biases", f"{base}.global_scale", _LARGEST_NVFP4),
        _Names(f"{name}.scale", f"{name}.bias", f"{name}.global_scale", 1),
        _Names(f"{name}_scale", f"{name}_qbias", f"{name}.global_scale", 1),
    )


def _shown(settings: Settings) -> str:
    return f"{settings.bits} bits, group_size {settings.group}, mode {settings.mode}"


def _weight(
    codes: SafeTensor, scales: SafeTensor, companions: Mapping[str, SafeTensor], names: _Names,
    settings: Settings, columns: int,
) -> Packed:  # fmt: skip
    biases, factor = companions.get(names.biases), companions.get(names.global_scale)
    if (biases is not None) != (settings.mode == "affine"):
        what = "there is no" if biases is None else "there is"
        raise FormatError(
            f"{scales.source}: tensor {codes.name!r} has scales of {scales.dtype}, and {what} "
            f"{names.biases!r}; expected biases if and only if scales are floats: {_MISMATCH}"
        )
    bits, _, mode = settings
    shape = (*codes.shape[:-1], columns)
    if factor is not None and mode != "nvfp4":
        raise UnsupportedError(
            f"{factor.source}: there is a tensor {factor.name!r} for a weight of {mode}; "
            "trinity supports it only in nvfp4: use the unquantized model"
        )
    if biases is not None:
        if (biases.dtype, biases.shape) != (scales.dtype, scales.shape):
            raise FormatError(
                f"{biases.source}: tensor {biases.name!r} is {biases.dtype} of shape "
                f"{biases.shape}; expected {scales.dtype} of {scales.shape}, as its scales: "
                f"{_MISMATCH}"
            )
        kind = mlx_blocks.affine_type(bits, settings.group, scales.dtype)
        pack = partial(mlx_blocks.affine, bits, scales, biases)
        return Packed(codes.name, shape, kind, codes.source, _parts(codes, scales, biases), pack)
    if mode == "mxfp4":
        pack = partial(mlx_blocks.mxfp4, scales)
        return Packed(codes.name, shape, "MXFP4", codes.source, _parts(codes, scales), pack)
    if mode == "mxfp8":
        pack = partial(mlx_blocks.mxfp8, codes, scales)
        return Packed(codes.name, shape, "FP8", codes.source, _parts(codes, scales), pack)
    factors = None if factor is None else _factors(factor, codes.shape[:-1], names.divisor)
    return _nvfp4(codes, scales, shape, factors)


def _nvfp4(
    codes: SafeTensor, scales: SafeTensor, shape: tuple[int, ...], factors: Part | None
) -> Packed:
    of_rows = factors is not None and factors.ndim == len(shape)
    if shape[-1] % 64 == 0 and not of_rows:
        pack = partial(mlx_blocks.nvfp4, scales)
        return Packed(
            codes.name, shape, "NVFP4", codes.source, _parts(codes, scales), pack,
            None if factors is None else factors.astype(np.float32),
        )  # fmt: skip
    if factors is None:
        factors = np.ones((), np.float32)
    each = factors if of_rows else factors[..., None, None]
    each = np.broadcast_to(each, (*shape[:-1], 1))

    def parts() -> tuple[Part, ...]:
        return (*_parts(codes, scales)(), each)

    pack = partial(mlx_blocks.nvfp4_floats, scales)
    return Packed(codes.name, shape, "F32", codes.source, parts, pack)


def _parts(codes: SafeTensor, *others: SafeTensor) -> partial[tuple[Part, ...]]:
    return partial(_views, codes, others)


def _views(codes: SafeTensor, others: tuple[SafeTensor, ...]) -> tuple[Part, ...]:
    """Return the codes as bytes, and the others as elements."""
    as_bytes: Bytes = codes.data.reshape(*codes.shape[:-1], -1)
    return as_bytes, *(tensor.elements() for tensor in others)


def _settings_of(codes: SafeTensor, scales: SafeTensor, columns: int) -> Settings:
    where = f"{codes.source}: tensor {codes.name!r}"
    if len(codes.shape) < 2 or 0 in codes.shape:
        raise FormatError(f"{where} has shape {codes.shape}; expected rows of codes: {_MISMATCH}")
    all_bits = 32 * codes.shape[-1]
    bits = all_bits // columns
    if bits * columns != all_bits or bits not in _BITS:
        raise FormatError(
            f"{where} has rows of {all_bits} bits for {columns} weights, as config.json implies; "
            f"expected {', '.join(map(str, _BITS[:-1]))} or {_BITS[-1]} bits for each: {_MISMATCH}"
        )
    *rows, groups = scales.shape or (0,)
    if tuple(rows) != codes.shape[:-1] or groups == 0 or columns % groups:
        raise FormatError(
            f"{scales.source}: tensor {scales.name!r} has shape {scales.shape}; expected "
            f"{codes.shape[:-1]} and a whole number of groups of {columns} weights: {_MISMATCH}"
        )
    group = columns // groups
    if scales.dtype in _FLOATS and group in _GROUPS:
        return Settings(bits, group, "affine")
    if scales.dtype == "U8" and (bits, group) in _FP_MODES:
        return Settings(bits, group, _FP_MODES[bits, group])
    raise UnsupportedError(
        f"{where} has {bits} bits in groups of {group} under scales of {scales.dtype}; trinity "
        f"reads groups of 32, 64 and 128 under scales of {', '.join(_FLOATS)}, and of bytes "
        "nvfp4 (4 bits, 16), mxfp4 (4, 32) and mxfp8 (8, 32): use the unquantized model"
    )


def _factors(tensor: SafeTensor, rows: tuple[int, ...], divisor: int) -> Part:
    """Return the factor of each matrix, of shape (...), or of each row, (..., rows, 1)."""
    values = tensor.floats(tensor.elements()) / np.float32(divisor)
    if not np.isfinite(values).all():
        raise FormatError(
            f"{tensor.source}: tensor {tensor.name!r} has numbers that are infinite or NaN; the "
            "checkpoint is damaged: download it again"
        )
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), rows[:-1])
    if values.shape in (rows[:-1], (*rows[:-1], 1), (*rows[:-1], 1, 1)):
        return values.reshape(rows[:-1])
    if values.shape in (rows, (*rows, 1)):
        return values.reshape(*rows, 1)
    raise FormatError(
        f"{tensor.source}: tensor {tensor.name!r} has shape {values.shape}; expected one number, "
        f"or one for each of the axes of {rows}: {_MISMATCH}"
    )


def _named_settings(config: Values) -> dict[str, Settings]:
    """Return the settings of single modules; false and names of plain modules have no effect.

    Raises ConfigError for an invalid setting.
    """
    value = config.values.get("quantization", config.values.get("quantization_config"))
    if not isinstance(value, dict) or "bits" not in value:
        return {}
    _read(config.source, "quantization", value)
    return {
        name: _read(config.source, f"quantization of {name[:100]!r}", entry)
        for name, entry in value.items()
        if isinstance(entry, dict)
    }


def _read(source: str, what: str, value: dict[str, object]) -> Settings:
    """Parse a setting; an entry without a mode is affine, whatever the outer one is."""
    bits, group = value.get("bits", 4), value.get("group_size", 64)
    mode = value.get("mode", "affine")
    for number in (bits, group):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ConfigError(
                f"{source}: {what} is {shown(value)}; expected whole numbers for bits and "
                "group_size"
            )
    if not isinstance(mode, str) or mode not in _MODES:
        raise UnsupportedError(
            f"{source}: {what} has the mode {shown(mode)}; trinity reads {', '.join(_MODES)}: take "
            "the unquantized model"
        )
    assert isinstance(bits, int)
    assert isinstance(group, int)
    return Settings(bits, group, mode)
