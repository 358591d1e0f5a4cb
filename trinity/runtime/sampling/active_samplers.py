"""Which samplers of a request apply, and whether the short way of ``Sampler`` suffices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trinity.runtime.sampling.sampling_params import SamplingParams

# The samplers that ``Sampler`` applies itself, in its order, and the options that turn each off.
_PLAIN: dict[str, dict[str, Any]] = {
    "penalties": {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
}


def active_samplers(params: SamplingParams) -> tuple[str, ...]:
    """The samplers that apply, in order; with mirostat, those before it."""
    if params.mirostat:
        return ("temperature",)
    off = {
        "penalties": not params.has_penalties,
        "dry": params.dry_multiplier == 0 or params.dry_penalty_last_n == 0,
        "top_n_sigma": params.top_n_sigma <= 0,
        "top_k": params.top_k == 0,
        "typ_p": params.typical_p == 1,
        "top_p": params.top_p == 1,
        "min_p": params.min_p == 0,
        "xtc": params.xtc_probability == 0 or params.xtc_threshold > 0.5,
        "temperature": params.temperature == 1 and params.dynatemp_range == 0,
    }
    return tuple(name for name in params.samplers if not off.get(name))


def has_dry(params: SamplingParams) -> bool:
    """Whether DRY applies, which needs its breakers."""
    return params.dry_multiplier > 0 and "dry" in active_samplers(params)


def keeps_state(params: SamplingParams) -> bool:
    """Whether a token depends on how earlier ones were drawn, in addition to the text."""
    return params.mirostat > 0 or not {"xtc", "adaptive_p"}.isdisjoint(active_samplers(params))


def plain_params(params: SamplingParams) -> SamplingParams | None:
    """Options with the same effect if ``samplers`` is ignored; None if there are none."""
    active = active_samplers(params)
    dynamic = params.dynatemp_range > 0 and "temperature" in active
    if params.mirostat or dynamic or active != tuple(name for name in _PLAIN if name in active):
        return None
    off = {
        option: value
        for name, options in _PLAIN.items()
        if name not in params.samplers
        for option, value in options.items()
    }
    return replace(params, **off) if off else params
