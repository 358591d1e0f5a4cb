"""llama: Llama 1 to 3, Mistral, TinyLlama, Mixtral, and ternary models of this architecture.

Source: llama.cpp src/models/llama.cpp. Its converters permute the rows of Q and K, so that
neighbouring dimensions rotate together. Mixtral is Llama with experts; its files have the
architecture llama.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import ROPE_TYPES, ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import long_rope_keys, refuse_other
from trinity.formats.huggingface.table import attention, experts, gated, pre_norm_layer
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def layer(
    config: ModelConfig, index: int, has: Has, *, head_norms: bool | None = None
) -> list[Operation]:
    """A layer of llama, and of families that differ only in names and biases.

    ``head_norms``: see ``blocks.projections``.
    """
    return [
        *attention_branch(config, index, has, head_norms=head_norms),
        *blocks.feed_forward(config, "silu"),
    ]


def attention_branch(
    config: ModelConfig, index: int, has: Has, *, head_norms: bool | None = None
) -> list[Operation]:
    """The first half of a layer, up to h, the input of its feed-forward."""
    attention = blocks.attention(
        config,
        blocks.rotation_of(config),
        window=config.window_of(index, 0),
        scale=config.attention_scale,
    )
    return blocks.attention_branch(config, has, attention, head_norms=head_norms)


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if config.experts is None:
        return layer(config, index, has)
    return [
        *attention_branch(config, index, has),
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size),
    ]


ARCHITECTURES = (Architecture(("llama",), _layer, rope_halves=False),)

# -- In transformers' checkpoints --

# Embedders' checkpoints are the model without its head.
WITHOUT_HEAD = (
    ("layers.", "model.layers."),
    ("embed_tokens.", "model.embed_tokens."),
    ("norm.", "model.norm."),
)
LAYER = pre_norm_layer(
    attention(bias="attention_bias", output_bias="attention_bias", permuted=True),
    gated(bias="mlp_bias"),
)

_EXPERT_LAYER = pre_norm_layer(
    attention(permuted=True),
    {
        "ffn_gate_inp": "block_sparse_moe.gate",
        **experts("block_sparse_moe.experts", gate="w1", up="w3", down="w2"),
    },
)


FAMILIES = (
    Family(
        classes={"LlamaForCausalLM": "llama"},
        wrappers={
            "Idefics3ForConditionalGeneration": "llama",
            "SmolVLMForConditionalGeneration": "llama",
        },
        layer=LAYER,
        keys=long_rope_keys,
        rope_types=(*ROPE_TYPES, "longrope"),
        quantization=("bitnet",),
    ),
    Family(
        classes={"IQuestCoderForCausalLM": "llama"},
        layer=LAYER,
        check=lambda config, values: refuse_other(
            values, {"clip_qkv": (None,), "use_sliding_window": (None, False)}
        ),
        defaults={"rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    ),
    Family(  # the form in which sentence-transformers saves an embedder
        classes={"LlamaModel": "llama"},
        layer=LAYER,
        renames=WITHOUT_HEAD,
        unused=r"lm_head\..*",
        headless=True,
        keys=long_rope_keys,
        rope_types=(*ROPE_TYPES, "longrope"),
    ),
    Family(
        classes={"InternLM3ForCausalLM": "llama"},
        layer=pre_norm_layer(
            attention(bias="attention_bias", output_bias="mlp_bias", permuted=True),
            gated(bias="mlp_bias"),
        ),
        rope_types=("linear", "dynamic"),
        defaults={"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5},
        older={"attention_bias": "qkv_bias", "mlp_bias": "bias"},
    ),
    Family(
        classes={"MistralForCausalLM": "llama"},
        layer=LAYER,
        windows=WindowTerms(),
        defaults={"sliding_window": 4096},
        quantization=("bitnet",),
    ),
    Family(
        classes={"MixtralForCausalLM": "llama"},
        layer=_EXPERT_LAYER,
        # If the key is missing, GGUF readers use feed_forward_length.
        keys=lambda config, values: {"expert_intermediate_size": None},
        windows=WindowTerms(),
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6},
        experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
    ),
)
