"""Small vision models of Qwen's: their configurations, names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for content in message.content %}"
    "{% if content.type == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content.text }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TEXT: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6, "vocab_size": 256 + len(SPECIAL), "tie_word_embeddings": False,
}  # fmt: skip
_VISION: dict[str, Any] = {
    "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 8,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3, "out_hidden_size": 48,
    "num_position_embeddings": 36, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
_CLASSES = {
    "qwen3vl": ("Qwen3VLForConditionalGeneration", "qwen3_vl"),
    "qwen35": ("Qwen3_5ForConditionalGeneration", "qwen3_5"),
    "qwen25vl": ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"),
    "qwen2vl": ("Qwen2VLForConditionalGeneration", "qwen2_vl"),
}
OF_2 = ("qwen25vl", "qwen2vl")
NAMES = tuple(_CLASSES)


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    class_name, kind = _CLASSES[name]
    ids = {token: 256 + number for number, token in enumerate(SPECIAL)}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_interleaved": True}
    text = _TEXT | {"model_type": f"{kind}_text", "num_hidden_layers": 3,
                    "rope_parameters": rope | {"mrope_section": [4, 2, 2]}}  # fmt: skip
    vision = _VISION | {"model_type": f"{kind}_vision", "deepstack_visual_indexes": [0, 1]}
    if name == "qwen35":
        rope |= {"mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
        text |= {
            "num_hidden_layers": 4, "rope_parameters": rope, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "partial_rotary_factor": 0.5,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        }  # fmt: skip
    if name in OF_2:
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]}
        text |= {"rope_parameters": rope, "num_hidden_layers": 2}
        del text["head_dim"]
    if name == "qwen2vl":
        vision |= {"embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2, "hidden_act": "quick_gelu"}
    if name == "qwen25vl":
        vision |= {"window_size": 32, "fullatt_block_indexes": [1], "hidden_act": "silu"}
    if name != "qwen3vl":
        del vision["deepstack_visual_indexes"]
    return {
        "architectures": [class_name], "model_type": kind, "text_config": text,
        "vision_config": vision, "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"], "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"], "tie_word_embeddings": False,
        "dtype": "float32",
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json: 4 to 48 rows for an image."""
    return {
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 8, "merge_size": 2,
        "temporal_patch_size": 2, "resample": 3, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "size": {"shortest_edge": 4 * 256, "longest_edge": 48 * 256}, "do_resize": True,
    }  # fmt: skip


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    tower = _tower_of_2 if name in OF_2 else _tower
    yield from tower(values["vision_config"])
    text = values["text_config"]
    width, inner = text["hidden_size"], text["intermediate_size"]
    yield "model.language_model.embed_tokens.weight", (text["vocab_size"], width)
    yield "model.language_model.norm.weight", (width,)
    yield "lm_head.weight", (text["vocab_size"], width)
    kinds = text.get("layer_types", ["full_attention"] * text["num_hidden_layers"])
    for layer, kind in enumerate(kinds):
        prefix = f"model.language_model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (width,)
        for part in ("gate", "up"):
            yield f"{prefix}mlp.{part}_proj.weight", (inner, width)
        yield f"{prefix}mlp.down_proj.weight", (width, inner)
        if kind == "linear_attention":
            yield from _delta_rule(text, f"{prefix}linear_attn.")
        else:
            yield from _attention(text, f"{prefix}self_attn.", name)


def _attention(text: dict[str, Any], prefix: str, name: str) -> Iterator[Any]:
    width, dim = text["hidden_size"], text.get("head_dim", 12)
    heads, keys = text["num_attention_heads"] * dim, text["num_key_value_heads"] * dim
    yield f"{prefix}q_proj.weight", (2 * heads if name == "qwen35" else heads, width)
    yield f"{prefix}k_proj.weight", (keys, width)
    yield f"{prefix}v_proj.weight", (keys, width)
    yield f"{prefix}o_proj.weight", (width, heads)
    if name in OF_2:
        for part, length in (("q", heads), ("k", keys), ("v", keys)):
            yield f"{prefix}{part}_proj.bias", (length,)
        return
    for norm in ("q_norm", "k_norm"):
        yield f"{prefix}{norm}.weight", (dim,)


def _delta_rule(text: dict[str, Any], prefix: str) -> Iterator[Any]:
    width, heads = text["hidden_size"], text["linear_num_value_heads"]
    values = heads * text["linear_value_head_dim"]
    channels = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"] + values
    yield f"{prefix}in_proj_qkv.weight", (channels, width)
    yield f"{prefix}in_proj_z.weight", (values, width)
    yield f"{prefix}in_proj_b.weight", (heads, width)
    yield f"{prefix}in_proj_a.weight", (heads, width)
    yield f"{prefix}conv1d.weight", (channels, 1, text["linear_conv_kernel_dim"])
    yield f"{prefix}A_log", (heads,)
    yield f"{prefix}dt_bias", (heads,)
    yield f"{prefix}norm.weight", (text["linear_value_head_dim"],)
    yield f"{prefix}out_proj.weight", (width, values)


def _tower(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, inner, size = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    joined, out = d * vision["spatial_merge_size"] ** 2, vision["out_hidden_size"]
    linears = {"patch_embed.proj": (d, 3, 2, size, size), "merger.linear_fc1": (joined, joined),
               "merger.linear_fc2": (out, joined)}  # fmt: skip
    norms = {"merger.norm": d}
    for layer in range(vision["depth"]):
        prefix = f"blocks.{layer}."
        linears |= {
            f"{prefix}attn.qkv": (3 * d, d), f"{prefix}attn.proj": (d, d),
            f"{prefix}mlp.linear_fc1": (inner, d), f"{prefix}mlp.linear_fc2": (d, inner),
        }  # fmt: skip
        norms |= {f"{prefix}norm1": d, f"{prefix}norm2": d}
    for number in range(len(vision.get("deepstack_visual_indexes", []))):
        prefix = f"deepstack_merger_list.{number}."
        norms[f"{prefix}norm"] = joined
        linears |= {f"{prefix}linear_fc1": (joined, joined), f"{prefix}linear_fc2": (out, joined)}
    yield "model.visual.pos_embed.weight", (vision["num_position_embeddings"], d)
    for module, shape in linears.items():
        yield f"model.visual.{module}.weight", shape
        yield f"model.visual.{module}.bias", shape[:1]
    for module, length in norms.items():
        for part in ("weight", "bias"):
            yield f"model.visual.{module}.{part}", (length,)


def _tower_of_2(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tower of Qwen2-VL, or of Qwen2.5-VL, which has RMS norms and a gate."""
    d, size = vision.get("embed_dim", vision["hidden_size"]), vision["patch_size"]
    joined, gated = d * vision["spatial_merge_size"] ** 2, "window_size" in vision
    inner = vision["intermediate_size"] if gated else d * vision["mlp_ratio"]
    up, down = (("gate_proj", "up_proj"), "down_proj") if gated else (("fc1",), "fc2")
    linears = {"merger.mlp.0": (joined, joined), "merger.mlp.2": (48, joined)}
    norms = ["merger.ln_q"]
    for layer in range(vision["depth"]):
        prefix = f"blocks.{layer}."
        linears |= {f"{prefix}mlp.{name}": (inner, d) for name in up}
        linears |= {f"{prefix}attn.qkv": (3 * d, d), f"{prefix}attn.proj": (d, d),
                    f"{prefix}mlp.{down}": (d, inner)}  # fmt: skip
        norms += [f"{prefix}norm1", f"{prefix}norm2"]
    yield "model.visual.patch_embed.proj.weight", (d, 3, 2, size, size)
    for module, shape in linears.items():
        yield f"model.visual.{module}.weight", shape
        yield f"model.visual.{module}.bias", shape[:1]
    for module in norms:
        yield f"model.visual.{module}.weight", (d,)
        if not gated:
            yield f"model.visual.{module}.bias", (d,)
