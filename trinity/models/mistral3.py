"""mistral3 (Ministral 3): llama with YaRN, and queries that grow with their position.

Source: llama.cpp src/models/mistral3.cpp; transformers' Ministral3.

The classes are Ministral 3 and Mistral Small 3.1, whose model_type "mistral" has no YaRN without a
key. GGUF has the rows of Q and K permuted.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.rope import read_yarn, rope_parameters, yarn_magnitude
from trinity.formats.huggingface.table import attention, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation, Temperature


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    temperature = None
    if config.temperature_scale:
        length = config.rope_scaling.original_context_length or config.context_length
        temperature = Temperature(config.temperature_scale, length)
    attention = blocks.attention(
        config,
        blocks.rotation_of(config),
        scale=config.attention_scale,
        window=config.window_of(index, 0),
        temperature=temperature,
    )
    return [*blocks.attention_branch(config, has, attention), *blocks.feed_forward(config, "silu")]


ARCHITECTURES = (Architecture(("mistral3",), _layer, rope_halves=False),)

# -- In transformers' checkpoints --

# The class's default, if the configuration has neither rope_parameters nor rope_scaling.
_YARN = {
    "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 16384, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}  # fmt: skip


_LAYER = pre_norm_layer(attention(permuted=True), gated())


def _keys(config: ModelConfig, values: Values) -> Keys:
    """Return the keys. Queries grow with their position, in steps of YaRN's original context."""
    parameters = rope_parameters(values)
    yarn = read_yarn(values, config.context_length)
    if yarn is None:
        if parameters.has("llama_4_scaling_beta"):
            raise UnsupportedError(
                f"{parameters.source}: llama_4_scaling_beta is supported only with the RoPE type "
                "yarn: without it, GGUF files have no original context length"
            )
        return {}
    keys: dict[str, object] = {}
    if parameters.has("llama_4_scaling_beta"):
        beta = parameters.real("llama_4_scaling_beta", "temperature_scale")
        keys["temperature_scale"] = beta
    if yarn.mscale_all_dim is not None:
        all_dim = yarn_magnitude(yarn.factor, yarn.mscale_all_dim)
        keys["yarn_log_multiplier"] = yarn.mscale_all_dim
        keys["rope_attn_factor"] = None
        keys |= yarn.attention_keys(yarn_magnitude(yarn.factor, 1.0) / all_dim)
    return keys


FAMILY = Family(
    classes={"Ministral3ForCausalLM": "mistral3"},
    wrappers={"Mistral3ForConditionalGeneration": "mistral3"},
    layer=_LAYER,
    keys=_keys,
    windows=WindowTerms(),
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_parameters": _YARN,
    },
    rope_types=("yarn",),
    of_type={"mistral": {"num_key_value_heads": 8, "sliding_window": 4096}},
)
