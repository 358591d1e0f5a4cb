"""Small vision models of Mistral's: their configurations, names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]",
)  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% if message['content'] is string %}{{ '[INST]' + message['content'] + '[/INST]' }}"
    "{% else %}{{ '[INST]' }}{% for block in message['content'] %}"
    "{% if block['type'] == 'text' %}{{ block['text'] }}"
    "{% elif block['type'] in ['image', 'image_url'] %}{{ '[IMG]' }}{% endif %}{% endfor %}"
    "{{ '[/INST]' }}{% endif %}{% else %}{{ message['content'] + eos_token }}{% endif %}"
    "{% endfor %}"
)
# The first is like Mistral Small 3.1, which joins 2 x 2 patches.
# The second is like Pixtral 12B, which joins none.
NAMES = ("mistral3", "pixtral")


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    ids = {token: 256 + number for number, token in enumerate(SPECIAL)}
    text = {
        "model_type": "mistral", "hidden_size": 48, "intermediate_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "num_hidden_layers": 2, "vocab_size": 256 + len(SPECIAL), "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048, "rope_theta": 1e4, "sliding_window": None,
        "tie_word_embeddings": False,
    }  # fmt: skip
    vision = {
        "model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16, "image_size": 96,
        "patch_size": 8, "hidden_act": "silu", "rope_theta": 1e4, "num_channels": 3,
    }  # fmt: skip
    if name == "pixtral":
        return {
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "text_config": text, "vision_config": vision, "image_token_index": ids["[IMG]"],
            "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
            "projector_hidden_act": "gelu", "tie_word_embeddings": False, "dtype": "float32",
        }  # fmt: skip
    return {
        "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
        "text_config": text, "vision_config": vision, "image_token_index": ids["[IMG]"],
        "spatial_merge_size": 2, "multimodal_projector_bias": False, "vision_feature_layer": -1,
        "projector_hidden_act": "gelu", "tie_word_embeddings": False, "dtype": "float32",
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json."""
    return {
        "image_processor_type": "PixtralImageProcessorFast", "patch_size": 8, "resample": 3,
        "size": {"longest_edge": 96}, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711], "do_resize": True,
    }  # fmt: skip


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    text, vision = values["text_config"], values["vision_config"]
    d, inner, size = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    yield "model.vision_tower.patch_conv.weight", (d, 3, size, size)
    yield "model.vision_tower.ln_pre.weight", (d,)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"model.vision_tower.transformer.layers.{layer}."
        for norm in ("attention_norm", "ffn_norm"):
            yield f"{prefix}{norm}.weight", (d,)
        for part in "qkvo":
            yield f"{prefix}attention.{part}_proj.weight", (d, d)
        yield f"{prefix}feed_forward.gate_proj.weight", (inner, d)
        yield f"{prefix}feed_forward.up_proj.weight", (inner, d)
        yield f"{prefix}feed_forward.down_proj.weight", (d, inner)
    width, projector = text["hidden_size"], "model.multi_modal_projector."
    if name == "mistral3":
        yield f"{projector}norm.weight", (d,)
        yield f"{projector}patch_merger.merging_layer.weight", (d, 4 * d)
    yield f"{projector}linear_1.weight", (width, d)
    yield f"{projector}linear_2.weight", (width, width)
    if name == "pixtral":
        yield f"{projector}linear_1.bias", (width,)
        yield f"{projector}linear_2.bias", (width,)
    heads, keys = text["num_attention_heads"] * 16, text["num_key_value_heads"] * 16
    yield "model.language_model.embed_tokens.weight", (text["vocab_size"], width)
    yield "model.language_model.norm.weight", (width,)
    for layer in range(text["num_hidden_layers"]):
        prefix = f"model.language_model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (width,)
        for module, shape in {
            "self_attn.q_proj": (heads, width), "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, heads),
            "mlp.gate_proj": (text["intermediate_size"], width),
            "mlp.up_proj": (text["intermediate_size"], width),
            "mlp.down_proj": (width, text["intermediate_size"]),
        }.items():  # fmt: skip
            yield f"{prefix}{module}.weight", shape
    yield "lm_head.weight", (text["vocab_size"], width)
