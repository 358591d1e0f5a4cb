"""Read the parameters of RoPE from metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trinity.config import RopeScaling
from trinity.errors import UnsupportedError
from trinity.formats.config_limits import SMALLEST_YARN_THETA
from trinity.formats.config_reader import ConfigReader, shown


def ntk_base(theta: float, alpha: float, head_dim: int) -> float:
    """Return the base of rotations with NTK scaling by a fixed factor, rounded as GGUF stores it.

    Source: transformers' HunYuanDenseV1, compute_ntk_alpha_rope_parameters.
    """
    base = theta * alpha ** (head_dim / max(head_dim - 2, 1))
    return float(np.float32(base))


def read_rope_dim(reader: ConfigReader, head_dim: int) -> int:
    """Return how many leading values of a head rotate; even, at most ``head_dim``."""
    return _rope_dim(reader, "rope_dim", "head_dim", head_dim)


def read_rope_dim_swa(reader: ConfigReader, head_dim: int, head_dim_swa: int) -> int:
    """Return the same for layers with a window; 0 if the file gives no value for them."""
    if not (head_dim_swa or reader.is_set("rope_dim_swa")):
        return 0
    other = "head_dim_swa" if head_dim_swa else "head_dim"
    return _rope_dim(reader, "rope_dim_swa", other, head_dim_swa or head_dim)


def _rope_dim(reader: ConfigReader, name: str, other: str, head_dim: int) -> int:
    rope_dim = reader.integer(name, default=head_dim)
    if rope_dim > head_dim:
        raise reader.clash(name, rope_dim, other, head_dim, "must not exceed")
    if rope_dim % 2:
        raise reader.error(name, f"is {rope_dim}; RoPE needs an even number")
    return rope_dim


def read_rope_sections(reader: ConfigReader, rope_dim: int) -> tuple[int, ...]:
    """Return how many pairs rotate by time, height and width.

    Empty if the file does not divide all pairs among these three; images then have no positions.
    """
    if not reader.is_set("rope_sections"):
        return ()
    value = reader.value("rope_sections")
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or len(value) < 3:
        return ()
    sections = tuple(value.tolist())
    if min(sections) < 0 or sum(sections[:3]) != rope_dim // 2 or any(sections[3:]):
        return ()
    return sections[:3]


def read_rope_scaling(
    reader: ConfigReader,
    context_length: int,
    rope_theta: float,
    shapes: Mapping[str, tuple[int, ...]],
) -> RopeScaling:
    """Read RoPE scaling.

    Llama 3's scaling has no key, only the tensor rope_freqs.weight; longrope's has two tensors.
    """
    kind = reader.value("rope_type") if reader.is_set("rope_type") else None
    named = isinstance(kind, str) and kind == "longrope"
    if "rope_factors_long.weight" in shapes and (kind is None or named):
        return RopeScaling(
            type="longrope",
            original_context_length=reader.integer("rope_original_context", default=context_length),
            attn_factor=_single(reader.real("rope_attn_factor", default=1.0)),
        )
    kind = "linear" if kind is None else kind
    if not isinstance(kind, str) or kind not in ("none", "linear", "yarn"):
        raise UnsupportedError(
            f"{reader.source}: {reader.key('rope_type')} is {shown(kind)}, which is not "
            "supported; known values: none, linear, yarn"
        )
    declared = reader.value("rope_factor", default=1.0)
    if isinstance(declared, float) and declared == 0.0:  # means no scaling, as in llama.cpp
        factor = 1.0
    else:
        factor = _single(reader.real("rope_factor", default=1.0))
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeScaling()
    if kind == "linear":
        return RopeScaling(type="linear", factor=factor)
    if rope_theta < SMALLEST_YARN_THETA:
        raise reader.error("rope_theta", f"is {rope_theta:g}; YaRN needs {SMALLEST_YARN_THETA:g}")
    return RopeScaling(
        type="yarn",
        factor=factor,
        original_context_length=reader.integer("rope_original_context", default=context_length),
        attn_factor=_single(_yarn_attn_factor(reader, factor)),
        yarn_ext_factor=_single(reader.real("yarn_ext_factor", default=1.0)),
        yarn_beta_fast=_single(reader.real("yarn_beta_fast", default=32.0)),
        yarn_beta_slow=_single(reader.real("yarn_beta_slow", default=1.0)),
        yarn_log_multiplier=_single(reader.real_or_none("yarn_log_multiplier")),
    )


def _yarn_attn_factor(reader: ConfigReader, factor: float) -> float:
    """Return what multiplies YaRN's usual factor of cosines and sines, 1 + 0.1 ln(factor).

    In files of Laguna the key that llama.cpp's converter writes replaces that factor, as
    ``attention_factor`` does in transformers. llama.cpp does not read the key.
    """
    further = reader.real("rope_attn_factor", default=1.0)
    if reader.architecture != "laguna" or not reader.is_set("yarn_attn_factor"):
        return further
    return further * reader.real("yarn_attn_factor") / (1 + 0.1 * math.log(max(1.0, factor)))


def _single(value: float) -> float:
    """Return the float32 that a GGUF file has for a value; a directory then gives the same bits."""
    return float(np.float32(value))
