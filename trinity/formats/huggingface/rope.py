"""Rotary positions in config.json: base, share of a head, scaling, and their GGUF keys.

Values are in ``rope_parameters``, by kind of layer if the kinds differ, or under the older names
``rope_theta``, ``rope_scaling``, ``rope_local_base_freq``. Source: transformers
modeling_rope_utils.py; llama.cpp conversion/base.py, TextModel.set_gguf_parameters.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.values import Values, shown
from trinity.formats.rope_keys import ntk_base

Tensors = dict[str, NDArray[np.float32]]

_FULL, _SLIDING = "full_attention", "sliding_attention"
_UNROTATED = 1e30  # angles divided by it are 0


@dataclass(frozen=True, slots=True)
class Scaling:
    """A scaling of rotary frequencies. This base class does not scale."""

    def keys(self) -> dict[str, object]:
        """Return the GGUF keys of the scaling, without the architecture's name."""
        return {}

    def tensors(self, theta: float, rope_dim: int) -> Tensors:
        """Return the GGUF tensors of the scaling: divisors of the rope_dim / 2 frequencies."""
        return {}


@dataclass(frozen=True, slots=True)
class LinearScaling(Scaling):
    """Linear scaling: positions are divided by ``factor``."""

    factor: float

    def keys(self) -> dict[str, object]:
        """Return the type and the factor."""
        return {"rope_type": "linear", "rope_factor": self.factor}


@dataclass(frozen=True, slots=True)
class Llama3Scaling(Scaling):
    """Llama 3.1's scaling of frequencies; original_context_length in tokens."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int

    def tensors(self, theta: float, rope_dim: int) -> Tensors:
        """Return rope_freqs.weight with the bits that llama.cpp's converter computes in float32.

        Source: transformers modeling_rope_utils.py, _compute_llama3_parameters: long wave lengths
        are stretched by the factor, short ones not at all, those between in proportion.
        """
        low, high = np.float32(self.low_freq_factor), np.float32(self.high_freq_factor)
        context, factor = np.float32(self.original_context_length), np.float32(self.factor)
        one, turn = np.float32(1), np.float32(2 * math.pi)
        powers = np.float32(theta) ** (np.arange(0, rope_dim, 2, dtype=np.float32) / rope_dim)
        # PyTorch divides a number by a tensor as the number times the tensor's reciprocal.
        wave_lengths = one / (one / powers) * turn
        with np.errstate(divide="ignore", invalid="ignore"):  # Llama 4: high and low are equal
            smooth = (one / wave_lengths * context - low) / (high - low)
            divisors: NDArray[np.float32] = np.asarray(one / ((one - smooth) / factor + smooth))
        divisors[wave_lengths > context / low] = factor
        divisors[wave_lengths < context / high] = one
        return {"rope_freqs.weight": divisors}


@dataclass(frozen=True, slots=True)
class YarnScaling(Scaling):
    """YaRN scaling."""

    factor: float
    original_context_length: int
    beta_fast: float
    beta_slow: float
    attention_factor: float  # multiplies cosines and sines
    mscale_all_dim: float | None  # of DeepSeek's and Mistral's classes
    truncate: bool = True  # the ramp ends at whole dimensions, as always for readers of GGUF

    def keys(self) -> dict[str, object]:
        """Return all keys for readers that multiply by 1 + 0.1 ln(factor) themselves."""
        keys: dict[str, object] = {
            "rope_type": "yarn",
            "rope_factor": self.factor,
            "rope_original_context": self.original_context_length,
            "yarn_beta_fast": self.beta_fast,
            "yarn_beta_slow": self.beta_slow,
        }
        return keys | self.attention_keys(yarn_magnitude(self.factor, 1.0))

    def attention_keys(self, expected: float) -> dict[str, object]:
        """Return the key for readers that multiply by ``expected``; {} if that is the factor."""
        further = self.attention_factor / expected
        return {} if abs(further - 1) < 1e-6 else {"rope_attn_factor": further}


@dataclass(frozen=True, slots=True)
class LongRope(Scaling):
    """LongRoPE: divisors of the frequencies, within the original context and beyond it."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    attention_factor: float

    def keys(self) -> dict[str, object]:
        """Return the factor of the cosines and sines; the tensors have the other values."""
        return {"rope_attn_factor": self.attention_factor}

    def tensors(self, theta: float, rope_dim: int) -> Tensors:
        """Return the divisors unchanged."""
        return {
            "rope_factors_long.weight": np.array(self.long, np.float32),
            "rope_factors_short.weight": np.array(self.short, np.float32),
        }


@dataclass(frozen=True, slots=True)
class Proportional(Scaling):
    """The frequencies are those of the whole head; only the fastest ``share`` of them rotates."""

    share: float

    def tensors(self, theta: float, rope_dim: int) -> Tensors:
        """Return rope_freqs.weight, which stops the other frequencies."""
        divisors = np.full(rope_dim // 2, _UNROTATED, np.float32)
        divisors[: int(rope_dim * self.share / 2)] = 1
        return {"rope_freqs.weight": divisors}


@dataclass(frozen=True, slots=True)
class NtkAlpha(Scaling):
    """NTK scaling: the base grows by a factor; the context is that of the model's family."""

    alpha: float

    def keys(self) -> dict[str, object]:
        """Return the type "none": the base is already larger."""
        return {"rope_type": "none"}


@dataclass(frozen=True, slots=True)
class DynamicNtk(Scaling):
    """Dynamic NTK scaling: the base grows with the text beyond the trained context.

    Within that context nothing is scaled. Beyond it, the result depends on how a text is divided
    into steps, because cached keys keep their rotation; trinity refuses such contexts.
    """


UNSCALED = Scaling()


@dataclass(frozen=True, slots=True)
class RopeParameters:
    """The rotation of a model."""

    theta: float
    share: float  # the part of each head that rotates
    scaling: Scaling
    theta_swa: float | None  # the base of windowed layers, which then have no scaling


def read_rope(
    values: Values, types: Collection[str], context_length: int, head_dim: int
) -> RopeParameters:
    """Read the rotary positions of a class that supports scaling of these ``types``.

    Raises ConfigError for impossible values, UnsupportedError for other types.
    """
    parameters = rope_parameters(values)
    by_kind = parameters.has(_FULL) or parameters.has(_SLIDING)
    full = parameters.inner(_FULL) if by_kind else parameters
    theta = full.real("rope_theta", "rope_theta", values.real("rope_theta", "rope_theta", 10_000.0))
    share = _share(full, _share(values, 1.0))
    scaling = _scaling(full, values, types, context_length, int(head_dim * share))
    theta_swa = None
    if by_kind or values.has("rope_local_base_freq"):
        local = values.real("rope_local_base_freq", "rope_theta", theta)
        sliding = parameters.inner(_SLIDING) if by_kind else Values({}, values.source)
        theta_swa = sliding.real("rope_theta", "rope_theta", local)
        if _type_of(sliding) != "default" or _share(sliding, 1.0) != 1.0:
            raise UnsupportedError(
                f"{sliding.source} is {shown(dict(sliding.values))}; trinity reads windowed layers "
                "without RoPE scaling"
            )
    if isinstance(scaling, Proportional):
        share = 1.0
    if isinstance(scaling, NtkAlpha):
        theta = ntk_base(theta, scaling.alpha, head_dim)
    return RopeParameters(theta, share, scaling, theta_swa)


def read_yarn(values: Values, context_length: int) -> YarnScaling | None:
    """Read the YaRN scaling of layers without a window; None for another scaling or none."""
    parameters = rope_parameters(values)
    if parameters.has(_FULL) or parameters.has(_SLIDING):
        parameters = parameters.inner(_FULL)
    return _yarn(parameters, context_length) if _type_of(parameters) == "yarn" else None


def rope_parameters(values: Values) -> Values:
    """Return the object of rotary positions; as in transformers, the older name overrides."""
    older = values.values.get("rope_scaling")
    return values.inner("rope_scaling" if older else "rope_parameters")


def rope_sections(values: Values, default: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the pairs of a head that rotate by time, height, width and one further position."""
    parameters = rope_parameters(values)
    sections = parameters.values.get("mrope_section")
    if not isinstance(sections, list) or not all(isinstance(size, int) for size in sections):
        sections = list(default)
    if any(not 0 <= size < 1 << 16 for size in sections):
        raise parameters.error("mrope_section", "must be a list of whole numbers from 0 to 65535")
    return np.array([*sections, 0, 0, 0, 0][:4], np.int32)


def yarn_magnitude(factor: float, mscale: float) -> float:
    """Return the factor that YaRN applies to cosines and sines."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _share(values: Values, default: float) -> float:
    key = values.first_of(("partial_rotary_factor", "rotary_pct"))
    share = values.real(key, "rope_factor", default)
    if share > 1:
        raise values.error(key, "must be at most 1")
    return share


def rope_type(values: Values) -> str:
    """Return the type of scaling in config.json."""
    return _type_of(rope_parameters(values))


def _type_of(parameters: Values) -> str:
    return parameters.text(parameters.first_of(("rope_type", "type")), "default")


def _scaling(
    parameters: Values, outer: Values, types: Collection[str], context_length: int, rope_dim: int
) -> Scaling:
    kind = _type_of(parameters)
    if kind == "dynamic" and kind in types and parameters.has("alpha"):
        return NtkAlpha(parameters.real("alpha", "rope_alpha"))
    if kind == "dynamic" and kind in types:
        return DynamicNtk()
    if kind == "default" or (kind == "mrope" and kind in types):  # the same for text
        return UNSCALED
    if kind not in types:
        raise UnsupportedError(
            f"{parameters.source}: RoPE scaling of type {kind[:40]!r}; of this class trinity reads "
            f"{', '.join(['default', *types])}"
        )
    if kind == "linear":
        return LinearScaling(parameters.real("factor", "rope_factor"))
    if kind == "proportional":
        return Proportional(_share(parameters, 1.0))
    if kind == "llama3":
        return _llama3(parameters, context_length)
    if kind == "yarn":
        return _yarn(parameters, context_length)
    return _long_rope(parameters, outer, context_length, rope_dim)


def _llama3(parameters: Values, context_length: int) -> Llama3Scaling:
    low = parameters.real("low_freq_factor", "rope_factor")
    high = parameters.real("high_freq_factor", "rope_factor")
    if np.float32(high) < np.float32(low):
        raise parameters.error("high_freq_factor", f"is less than low_freq_factor {low}")
    return Llama3Scaling(
        parameters.real("factor", "rope_factor"), low, high, _original(parameters, context_length)
    )


def _yarn(parameters: Values, context_length: int) -> YarnScaling:
    """Read YaRN. Source: transformers modeling_rope_utils.py, _compute_yarn_parameters."""
    factor = parameters.real("factor", "rope_factor")
    mscale, all_dim = (
        parameters.real(key, "yarn_log_multiplier") if parameters.has(key) else None
        for key in ("mscale", "mscale_all_dim")
    )
    magnitude = yarn_magnitude(factor, 1.0)
    if mscale is not None and all_dim is not None:
        magnitude = yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim)
    return YarnScaling(
        factor=factor,
        original_context_length=_original(parameters, context_length),
        beta_fast=parameters.real("beta_fast", "yarn_beta_fast", 32.0),
        beta_slow=parameters.real("beta_slow", "yarn_beta_slow", 1.0),
        attention_factor=parameters.real("attention_factor", "rope_attn_factor", magnitude),
        mscale_all_dim=all_dim,
        truncate=parameters.flag("truncate", default=True),
    )


def _long_rope(parameters: Values, outer: Values, context_length: int, rope_dim: int) -> LongRope:
    """Read LongRoPE. Source: transformers modeling_rope_utils.py, _compute_longrope_parameters."""
    key = "original_max_position_embeddings"
    original = _original(outer if outer.has(key) else parameters, context_length)
    if original < 2:
        raise outer.error(key, "must be at least 2 with this RoPE scaling")
    further = max(context_length / original, 1.0)
    magnitude = math.sqrt(1 + math.log(further) / math.log(original))
    return LongRope(
        short=parameters.reals("short_factor", "rope_factor", rope_dim // 2),
        long=parameters.reals("long_factor", "rope_factor", rope_dim // 2),
        attention_factor=parameters.real("attention_factor", "rope_attn_factor", magnitude),
    )


def _original(values: Values, context_length: int) -> int:
    return values.size("original_max_position_embeddings", "rope_original_context", context_length)
