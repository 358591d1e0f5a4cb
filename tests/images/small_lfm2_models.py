"""A small vision model like LFM2-VL: its configuration, names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SPECIAL = (
    "<|startoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<|image_start|>",
    "<|image_end|>", "<|img_thumbnail|>",
    *(f"<|img_row_{row}_col_{column}|>" for row in "123456" for column in "123456"),
)  # fmt: skip
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for item in message['content'] %}{% if item['type'] == 'image' %}{{ '<image>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The second's projector has no norm.
NAMES = ("lfm2vl", "lfm2vl_plain")


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    ids = {token: 256 + number for number, token in enumerate(SPECIAL)}
    text = {
        "model_type": "lfm2", "hidden_size": 48, "intermediate_size": 64,
        "block_auto_adjust_ff_dim": False, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"],
        "vocab_size": 256 + len(SPECIAL), "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": False,
        "max_position_embeddings": 2048, "rope_theta": 1e4, "tie_word_embeddings": True,
    }  # fmt: skip
    vision = {
        "model_type": "siglip2_vision_model", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_patches": 16, "patch_size": 8,
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "vision_use_head": False,
    }  # fmt: skip
    return {
        "architectures": ["Lfm2VlForConditionalGeneration"], "model_type": "lfm2_vl",
        "text_config": text, "vision_config": vision, "image_token_id": ids["<image>"],
        "projector_hidden_size": 40, "projector_bias": True, "projector_hidden_act": "gelu",
        "projector_use_layernorm": name == "lfm2vl", "downsample_factor": 2,
        "tie_word_embeddings": True, "dtype": "float32",
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json: 4 to 10 rows for an image or a tile of it."""
    return {
        "image_processor_type": "Lfm2VlImageProcessorFast", "encoder_patch_size": 8,
        "downsample_factor": 2, "min_image_tokens": 4, "max_image_tokens": 10, "tile_size": 32,
        "min_tiles": 2, "max_tiles": 6, "max_pixels_tolerance": 2.0, "use_thumbnail": True,
        "do_image_splitting": True, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    text, vision = values["text_config"], values["vision_config"]
    d, inner = vision["hidden_size"], vision["intermediate_size"]
    tower = "model.vision_tower."
    yield f"{tower}embeddings.patch_embedding.weight", (d, 3 * vision["patch_size"] ** 2)
    yield f"{tower}embeddings.patch_embedding.bias", (d,)
    yield f"{tower}embeddings.position_embedding.weight", (vision["num_patches"], d)
    yield from _linear(f"{tower}post_layernorm", d)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"{tower}encoder.layers.{layer}."
        for norm in ("layer_norm1", "layer_norm2"):
            yield from _linear(prefix + norm, d)
        for which in ("q", "k", "v", "out"):
            yield from _linear(f"{prefix}self_attn.{which}_proj", d, d)
        yield from _linear(f"{prefix}mlp.fc1", inner, d)
        yield from _linear(f"{prefix}mlp.fc2", d, inner)
    width, between = text["hidden_size"], values["projector_hidden_size"]
    if values["projector_use_layernorm"]:
        yield from _linear("model.multi_modal_projector.layer_norm", 4 * d)
    yield from _linear("model.multi_modal_projector.linear_1", between, 4 * d)
    yield from _linear("model.multi_modal_projector.linear_2", width, between)
    yield "model.language_model.embed_tokens.weight", (text["vocab_size"], width)
    yield "model.language_model.embedding_norm.weight", (width,)
    dim, keys = width // text["num_attention_heads"], text["num_key_value_heads"] * 12
    for layer, kind in enumerate(text["layer_types"]):
        prefix = f"model.language_model.layers.{layer}."
        for norm in ("operator_norm", "ffn_norm"):
            yield f"{prefix}{norm}.weight", (width,)
        for part, shape in (
            ("w1", (text["intermediate_size"], width)), ("w2", (width, text["intermediate_size"])),
            ("w3", (text["intermediate_size"], width)),
        ):  # fmt: skip
            yield f"{prefix}feed_forward.{part}.weight", shape
        if kind == "conv":
            yield f"{prefix}conv.in_proj.weight", (3 * width, width)
            yield f"{prefix}conv.conv.weight", (width, 1, text["conv_L_cache"])
            yield f"{prefix}conv.out_proj.weight", (width, width)
            continue
        for part, rows in (("q", width), ("k", keys), ("v", keys), ("out", width)):
            yield f"{prefix}self_attn.{part}_proj.weight", (rows, width)
        for norm in ("q_layernorm", "k_layernorm"):
            yield f"{prefix}self_attn.{norm}.weight", (dim,)


def _linear(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A weight of this shape and its bias."""
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]
