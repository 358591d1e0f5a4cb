"""Small vision models of LLaVA: their configurations, names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.images.small_internvl_models import linear, text_shapes

SPECIAL = ("<s>", "</s>", "<image>", "<pad>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] | upper }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "{{ '<image>\n' }}{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
# LLaVA 1.5, the same with a tower of SigLIP, LLaVA 1.6, and Granite Vision.
NAMES = ("llava", "llava_siglip", "llava_next", "granite_vision")
NEXT = ("llava_next", "granite_vision")
_GRIDS = ((1, 2), (2, 1), (2, 2), (3, 1), (1, 3))


def _side(name: str) -> int:
    """The side of a tile; that of Granite Vision has a rest, as SigLIP's 384 of patches of 14."""
    return 35 if name == "granite_vision" else 32


def _pinpoints(name: str) -> list[list[int]]:
    return [[_side(name) * tiles for tiles in grid] for grid in _GRIDS]


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    ids = {token: 256 + number for number, token in enumerate(SPECIAL)}
    text = {
        "model_type": "mistral" if name == "llava_next" else "llama", "hidden_size": 48,
        "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "vocab_size": 256 + len(SPECIAL), "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048, "tie_word_embeddings": False, "sliding_window": None,
    }  # fmt: skip
    vision = {
        "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 56,
        "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": _side(name),
        "patch_size": 8,
        "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
    }  # fmt: skip
    class_name, more = "LlavaForConditionalGeneration", dict[str, Any]()
    if name == "granite_vision":
        text |= {"model_type": "granite", "embedding_multiplier": 3.0, "attention_multiplier": 0.2,
                 "residual_multiplier": 0.4, "logits_scaling": 0.5}  # fmt: skip
        more["vision_feature_layer"] = [-3, -1]
    if name in ("llava_siglip", "granite_vision"):
        vision |= {"model_type": "siglip_vision_model", "hidden_act": "gelu_pytorch_tanh",
                   "layer_norm_eps": 1e-6, "vision_use_head": False}  # fmt: skip
        more["vision_feature_select_strategy"] = "full"
    if name in NEXT:
        class_name = "LlavaNextForConditionalGeneration"
        more["image_grid_pinpoints"] = _pinpoints(name)
    return {
        "architectures": [class_name], "text_config": text, "vision_config": vision,
        "model_type": "llava_next" if name in NEXT else "llava",
        "image_token_index": ids["<image>"], "tie_word_embeddings": False, "dtype": "float32",
        "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu", **more,
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json."""
    shared = {
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "resample": 3,
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }  # fmt: skip
    if name == "llava_siglip":
        return {
            **shared, "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 32, "width": 32},
        }  # fmt: skip
    crop = {
        **shared, "size": {"shortest_edge": _side(name)},
        "crop_size": {"height": _side(name), "width": _side(name)},
        "do_center_crop": True, "image_processor_type": "CLIPImageProcessor",
    }  # fmt: skip
    if name in NEXT:
        crop |= {"image_processor_type": "LlavaNextImageProcessor", "do_pad": True,
                 "image_grid_pinpoints": _pinpoints(name)}  # fmt: skip
    return crop


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    vision, width = values["vision_config"], values["text_config"]["hidden_size"]
    yield from _tower(vision)
    features = 2 if name == "granite_vision" else 1
    wide = features * vision["hidden_size"]
    yield from linear("model.multi_modal_projector.linear_1", width, wide)
    yield from linear("model.multi_modal_projector.linear_2", width, width)
    if name in NEXT:
        yield "model.image_newline", (width,)
    yield from text_shapes(values["text_config"])


def _tower(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, inner = vision["hidden_size"], vision["intermediate_size"]
    is_clip, tower = vision["model_type"] == "clip_vision_model", "model.vision_tower."
    size, patches = vision["patch_size"], (vision["image_size"] // vision["patch_size"]) ** 2
    yield f"{tower}embeddings.patch_embedding.weight", (d, 3, size, size)
    yield f"{tower}embeddings.position_embedding.weight", (patches + is_clip, d)
    if is_clip:
        yield f"{tower}embeddings.class_embedding", (d,)
    else:
        yield f"{tower}embeddings.patch_embedding.bias", (d,)
    for norm in ("post_layernorm", "pre_layrnorm")[: 1 + is_clip]:
        for part in ("weight", "bias"):
            yield f"{tower}{norm}.{part}", (d,)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"{tower}encoder.layers.{layer}."
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{prefix}self_attn.{part}", d, d)
        yield from linear(f"{prefix}mlp.fc1", inner, d)
        yield from linear(f"{prefix}mlp.fc2", d, inner)
        for norm in ("layer_norm1", "layer_norm2"):
            for part in ("weight", "bias"):
                yield f"{prefix}{norm}.{part}", (d,)
