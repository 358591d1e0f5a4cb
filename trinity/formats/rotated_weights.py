"""Weights that were stored after a rotation: PrismML's ``prism.hadamard.*`` keys.

Each product with such a weight needs its input rotated in the same way. Without that, a model runs
and writes nonsense, so everything that is not known is refused.
Source: PrismML's llama.cpp, src/llama-model.cpp; Ternary-Bonsai-2-27B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from trinity.config import WeightRotation
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.gguf_layout import ROTATION_KEYS

_KEYS = ROTATION_KEYS + "hadamard."
# The only values that are known.
_KNOWN: Mapping[str, tuple[object, ...]] = {
    "version": (1,),
    "transform": ("normalized-sylvester-walsh-hadamard",),
    "axis": ("input-last-dimension",),
    "sign_mode": ("explicit", "identity"),
}
_OTHERS = frozenset(
    {"block_size", "sign_widths", "sign_values", "weight_names", "inverse_weight_names",
     "gdn_v_grouped"}
)  # fmt: skip
_EMBEDDING = "token_embd.weight"
_LARGEST_BLOCK = 1 << 18


def read_rotation(metadata: Mapping[str, object], source: str) -> WeightRotation | None:
    """The rotation that a GGUF file's keys describe; None if its weights are not rotated.

    Raises UnsupportedError for a version, transform, key or value that is not known, ConfigError
    for one that is malformed.
    """
    keys = [key for key in metadata if key.startswith(ROTATION_KEYS)]
    if not keys:
        return None
    for key in keys:
        if key.removeprefix(_KEYS) not in _OTHERS | _KNOWN.keys():
            raise _unknown(source, f"the key {key!r}")
    for name, known in _KNOWN.items():
        value = metadata.get(_KEYS + name)
        if isinstance(value, np.ndarray) or value not in known or isinstance(value, bool):
            raise _unknown(source, f"{_KEYS}{name} {str(value)[:80]!r}")
    block = metadata.get(_KEYS + "block_size")
    if not _is_whole(block) or not 1 <= block <= _LARGEST_BLOCK or block & (block - 1):
        raise _malformed(source, "block_size", "a power of 2")
    inverse = _names(metadata, "inverse_weight_names", source)
    if other := set(inverse) - {_EMBEDDING}:
        raise _unknown(source, f"an inverse rotation of tensor {min(other)!r}")
    grouped = metadata.get(_KEYS + "gdn_v_grouped", False)
    if not isinstance(grouped, bool):
        raise _malformed(source, "gdn_v_grouped", "a bool")
    return WeightRotation(
        block, tuple(sorted(set(_names(metadata, "weight_names", source)))), bool(inverse), grouped,
        _signs(metadata, source),
    )  # fmt: skip


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(metadata: Mapping[str, object], name: str, source: str) -> Sequence[str]:
    value = metadata.get(_KEYS + name, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _malformed(source, name, "an array of strings")
    return value


def _signs(metadata: Mapping[str, object], source: str) -> tuple[tuple[int, bytes], ...] | None:
    """The signs of each width as int8; None if all are +1."""
    if metadata[_KEYS + "sign_mode"] == "identity":
        return None
    widths, values = (_integers(metadata, name, source) for name in ("sign_widths", "sign_values"))
    if not len(widths) or (widths < 1).any() or len(set(widths.tolist())) != len(widths):
        raise _malformed(source, "sign_widths", "different positive numbers")
    # Python's integers: the sum of hostile widths may not fit 64 bits.
    if sum(widths.tolist()) != len(values) or not np.isin(values, (-1, 1)).all():
        raise _malformed(source, "sign_values", "+1 or -1 for each element of all sign_widths")
    ends = np.cumsum(widths)
    return tuple(
        (int(width), values[end - width : end].astype(np.int8).tobytes())
        for width, end in zip(widths, ends, strict=True)
    )


def _integers(metadata: Mapping[str, object], name: str, source: str) -> NDArray[np.int64]:
    value = metadata.get(_KEYS + name)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.ndim != 1:
        raise _malformed(source, name, "an array of integers")
    return value.astype(np.int64)


def _message(source: str, what: str) -> str:
    return (
        f"{source}: the weights were rotated by a Hadamard transform with {what}, which is not "
        "supported: without the right rotation the model would write nonsense; use a newer "
        "trinity, or a file of this model without rotation"
    )


def _unknown(source: str, what: str) -> UnsupportedError:
    return UnsupportedError(_message(source, what))


def _malformed(source: str, name: str, expected: str) -> ConfigError:
    return ConfigError(f"{source}: {_KEYS}{name} is not {expected}; the file is damaged")
