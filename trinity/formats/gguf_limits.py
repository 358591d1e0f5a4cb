"""Model settings that a GGUF file cannot store, or that llama.cpp does not read from one.

A GGUF file of a model with such a setting would not load in llama.cpp, or would give other results.
tests/goldens/llama_cpp_loads.py and tests/tools/test_llama_cpp_loads.py found which architectures
read which keys and tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from trinity.config import ModelConfig, RopeScaling
from trinity.errors import UnsupportedError
from trinity.formats.text_rules import activation_key

# Architectures for which llama.cpp reads the tensor rope_freqs, YaRN's betas and dense layers.
# Source: src/models/*.cpp, load_arch_tensors and load_arch_hparams; and build_graph, because
# falcon-h1 loads the divisors and does not use them.
_ROPE_DIVISORS = frozenset(
    (
        "llama",
        "llama4",
        "apertus",
        "granite",
        "granitemoe",
        "granitehybrid",
        "exaone",
        "exaone4",
        "mistral3",
        "gemma4",
        "step35",
    )
)
_LATENT = frozenset(("deepseek2", "deepseek32"))
# llama.cpp's converter writes betas of laguna, which its reader ignores; trinity reads them.
_YARN_BETAS = frozenset(("laguna", "mistral3"))
_DENSE = frozenset(("gemma-embedding", "gemma3"))
# llama.cpp's converter writes gpt-oss files anyway, although readers round the ramp's ends.
_ROUNDED = frozenset(("gpt-oss",))
_USUAL = RopeScaling()


def check_limits(
    config: ModelConfig,
    shapes: Mapping[str, tuple[int, ...]],
    metadata: Mapping[str, object],
    source: str,
) -> None:
    """Raise UnsupportedError if the model has a setting that a GGUF file cannot store."""
    reason = _dense(config, shapes, metadata) or _rope(config, shapes) or _softcaps(config)
    if reason:
        raise UnsupportedError(
            f"{source}: {reason}; a GGUF file would give other results: run the directory instead"
        )


def rounds_ramp(config: ModelConfig) -> bool:
    """Whether readers of a GGUF file round the ends of YaRN's ramp although the model does not."""
    rope = config.rope_scaling
    return config.architecture in _ROUNDED and rope.type == "yarn" and not rope.yarn_truncate


def _rope(config: ModelConfig, names: Collection[str]) -> str:
    rope, architecture = config.rope_scaling, config.architecture
    if "rope_freqs.weight" in names and architecture not in _ROPE_DIVISORS:
        return (
            "its RoPE scaling divides frequencies by a tensor (llama3), which llama.cpp does not "
            f"read for {architecture}"
        )
    if architecture in _LATENT and rope.type == "linear":
        return f"llama.cpp computes linear RoPE scaling of {architecture} differently"
    if rope.type != "yarn":
        return ""
    if architecture in _LATENT and not rope.yarn_log_multiplier:
        return "its YaRN has no mscale_all_dim; llama.cpp then scales attention differently"
    read = replace(rope, yarn_truncate=rope.yarn_truncate or architecture not in _ROUNDED)
    if architecture not in _YARN_BETAS:
        read = replace(
            read, yarn_beta_fast=_USUAL.yarn_beta_fast, yarn_beta_slow=_USUAL.yarn_beta_slow
        )
    theta, dim = config.rope_theta, config.rope_dim
    if read.yarn_ramp(theta, dim) != rope.yarn_ramp(theta, dim):
        return (
            f"its YaRN has truncate {rope.yarn_truncate}, beta_fast {rope.yarn_beta_fast:g} and "
            f"beta_slow {rope.yarn_beta_slow:g}, but llama.cpp computes {architecture} with true, "
            f"{read.yarn_beta_fast:g} and {read.yarn_beta_slow:g}"
        )
    return ""


def _softcaps(config: ModelConfig) -> str:
    caps = (config.attn_logit_softcap, config.final_logit_softcap)
    if config.architecture == "gemma2" and 0.0 in caps:
        return "its attention scores or logits are not capped, but llama.cpp always caps gemma2's"
    return ""


def _dense(
    config: ModelConfig, shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, object]
) -> str:
    dense = [name for name in ("dense_2", "dense_3") if f"{name}.weight" in shapes]
    if not dense:
        return ""
    if config.architecture not in _DENSE:
        return f"llama.cpp does not read dense layers after pooling for {config.architecture}"
    for name in dense:
        if f"{name}.bias" in shapes or activation_key(name) in metadata:
            return f"GGUF has no key for the bias or the activation of its dense layer {name}"
    last = shapes[f"{dense[-1]}.weight"][0]
    if dense == ["dense_2", "dense_3"] and last != config.hidden_size:
        return (
            f"its last dense layer has {last} outputs, but llama.cpp reads only those with as many "
            f"as the hidden size, {config.hidden_size}"
        )
    return ""
