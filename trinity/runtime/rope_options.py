"""Rotary positions that a user sets at loading, in place of the model's.

Source: llama.cpp src/llama-context.cpp, the constructor of llama_context.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig, RopeScaling
from trinity.errors import InputError
from trinity.formats.config_limits import SMALLEST_YARN_THETA
from trinity.options.load_options import LoadOptions


def with_rope_options(config: ModelConfig, options: LoadOptions, source: str) -> ModelConfig:
    """The configuration with the rotary options that were given.

    With YaRN and another factor than the model's, the trained context grows accordingly. Raises
    InputError for a model whose rotations the options cannot describe.
    """
    given = options.rotary
    if not given:
        return config
    if config.rope_scaling.type == "longrope":
        raise InputError(f"{source}: {given[0]} does not apply to scaling of the type longrope")
    if config.sliding_window:
        raise InputError(
            f"{source}: {given[0]} does not apply to a model with sliding windows, whose layers "
            "rotate in two ways"
        )
    theta = options.rope_freq_base or config.rope_theta
    scaling = _scaling(config, options)
    if scaling.type == "yarn" and theta < SMALLEST_YARN_THETA:
        raise InputError(
            f"{source}: the base of the rotary frequencies is {theta:g}; YaRN needs at least "
            f"{SMALLEST_YARN_THETA:g}",
            "rope_freq_base",
        )
    length = config.context_length
    if scaling.type == "yarn" and scaling.factor != config.rope_scaling.factor:
        length = int(scaling.original_context_length * scaling.factor)
    return replace(config, rope_theta=theta, rope_scaling=scaling, context_length=length)


def _scaling(config: ModelConfig, options: LoadOptions) -> RopeScaling:
    before = config.rope_scaling
    kind = options.rope_scaling or ("yarn" if before.type == "yarn" else "linear")
    factor = options.rope_scale or before.factor
    if options.rope_freq_scale:
        factor = 1 / options.rope_freq_scale
    if kind == "none":
        factor = 1.0
    share = options.yarn_ext_factor
    if share is None:
        trained = before.yarn_ext_factor if before.type == "yarn" else 1.0
        share = trained if kind == "yarn" else 0.0
    if share == 0:
        magnitude = before.attn_factor * (options.yarn_attn_factor or 1.0)
        return RopeScaling("linear", factor, attn_factor=magnitude)
    return RopeScaling(
        type="yarn",
        factor=factor,
        original_context_length=options.yarn_orig_ctx
        or before.original_context_length
        or config.context_length,
        attn_factor=before.attn_factor,
        yarn_ext_factor=share,
        yarn_beta_fast=options.yarn_beta_fast or before.yarn_beta_fast,
        yarn_beta_slow=options.yarn_beta_slow or before.yarn_beta_slow,
        yarn_log_multiplier=before.yarn_log_multiplier,
        yarn_truncate=before.yarn_truncate,
    )
