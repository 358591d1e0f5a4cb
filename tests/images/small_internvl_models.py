"""Small vision models of InternVL: their configurations, names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>",
)  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "{{ '<IMG_CONTEXT>\n' }}{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{'<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}"
)
# The second is like the models with the tower of 6B.
NAMES = ("internvl", "internvl_6b")


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json."""
    is_6b, ids = name == "internvl_6b", {t: 256 + number for number, t in enumerate(SPECIAL)}
    text = {
        "model_type": "qwen3" if is_6b else "qwen2", "hidden_size": 48, "intermediate_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 256 + len(SPECIAL), "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "rope_theta": 1e4,
    }  # fmt: skip
    if is_6b:
        text["head_dim"] = 16
    vision = {
        "model_type": "internvl_vision", "hidden_size": 32, "intermediate_size": 56,
        "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": [48, 48],
        "patch_size": [8, 8], "hidden_act": "gelu", "layer_norm_eps": 1e-6,
        "attention_bias": not is_6b, "use_qk_norm": is_6b,
        "norm_type": "rms_norm" if is_6b else "layer_norm",
    }  # fmt: skip
    return {
        "architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl",
        "text_config": text, "vision_config": vision, "image_token_id": ids["<IMG_CONTEXT>"],
        "image_seq_length": 9, "downsample_ratio": 0.5, "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": False, "dtype": "float32",
    }  # fmt: skip


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json."""
    return {
        "image_processor_type": "GotOcr2ImageProcessorFast", "crop_to_patches": False,
        "min_patches": 1, "max_patches": 6 if name == "internvl" else 12, "resample": 3,
        "size": {"height": 48, "width": 48}, "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }  # fmt: skip


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    vision, width = values["vision_config"], values["text_config"]["hidden_size"]
    yield from _tower(vision)
    yield from linear("model.multi_modal_projector.linear_1", width, 4 * vision["hidden_size"])
    yield from linear("model.multi_modal_projector.linear_2", width, width)
    for part in ("weight", "bias"):
        yield f"model.multi_modal_projector.layer_norm.{part}", (4 * vision["hidden_size"],)
    yield from text_shapes(values["text_config"])


def linear(name: str, n: int, k: int, *, bias: bool = True) -> Iterator[tuple[str, Any]]:
    """The weight of a linear, and its bias if it has one."""
    yield f"{name}.weight", (n, k)
    if bias:
        yield f"{name}.bias", (n,)


def _tower(vision: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    d, inner, tower = vision["hidden_size"], vision["intermediate_size"], "model.vision_tower."
    size, patches = vision["patch_size"][0], (vision["image_size"][0] // vision["patch_size"][0])
    yield f"{tower}embeddings.cls_token", (1, 1, d)
    yield f"{tower}embeddings.position_embeddings", (1, patches**2 + 1, d)
    yield f"{tower}embeddings.patch_embeddings.projection.weight", (d, 3, size, size)
    yield f"{tower}embeddings.patch_embeddings.projection.bias", (d,)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"{tower}encoder.layer.{layer}."
        for part in "qkv":
            bias = vision["attention_bias"]
            yield from linear(f"{prefix}attention.{part}_proj", d, d, bias=bias)
        yield from linear(f"{prefix}attention.projection_layer", d, d)
        for norm in ("q_norm", "k_norm") if vision["use_qk_norm"] else ():
            yield f"{prefix}attention.{norm}.weight", (d,)
        yield from linear(f"{prefix}mlp.fc1", inner, d)
        yield from linear(f"{prefix}mlp.fc2", d, inner)
        for norm in ("layernorm_before", "layernorm_after"):
            yield f"{prefix}{norm}.weight", (d,)
            if vision["norm_type"] == "layer_norm":
                yield f"{prefix}{norm}.bias", (d,)
        for factors in ("lambda_1", "lambda_2"):
            yield f"{prefix}{factors}", (d,)


def text_shapes(text: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a language model of Llama, Mistral, Qwen 2 or Qwen 3 within another."""
    width, inner, model = text["hidden_size"], text["intermediate_size"], "model.language_model."
    dim = text.get("head_dim", width // text["num_attention_heads"])
    heads, keys = text["num_attention_heads"] * dim, text["num_key_value_heads"] * dim
    yield f"{model}embed_tokens.weight", (text["vocab_size"], width)
    yield f"{model}norm.weight", (width,)
    yield "lm_head.weight", (text["vocab_size"], width)
    for layer in range(text["num_hidden_layers"]):
        prefix = f"{model}layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (width,)
        bias = text["model_type"] == "qwen2"
        for part, rows in (("q", heads), ("k", keys), ("v", keys)):
            yield from linear(f"{prefix}self_attn.{part}_proj", rows, width, bias=bias)
        yield f"{prefix}self_attn.o_proj.weight", (width, heads)
        for norm in ("q_norm", "k_norm") if text["model_type"] == "qwen3" else ():
            yield f"{prefix}self_attn.{norm}.weight", (dim,)
        for part in ("gate", "up"):
            yield f"{prefix}mlp.{part}_proj.weight", (inner, width)
        yield f"{prefix}mlp.down_proj.weight", (width, inner)


_CHAT_ENDS = {
    "embeddings.cls_token": "vision_model.embeddings.class_embedding",
    "embeddings.position_embeddings": "vision_model.embeddings.position_embedding",
}  # fmt: skip
_CHAT_PARTS = {
    "model.vision_tower.": "vision_model.", "model.multi_modal_projector.": "mlp1.",
    "model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head.",
    "patch_embeddings.projection": "patch_embedding", "encoder.layer.": "encoder.layers.",
    "layernorm_before": "norm1", "layernorm_after": "norm2", "attention.projection_layer":
    "attn.proj", "attention.q_norm": "attn.q_norm", "attention.k_norm": "attn.k_norm",
    "lambda_1": "ls1", "lambda_2": "ls2", "mlp1.layer_norm": "mlp1.0", "mlp1.linear_1": "mlp1.1",
    "mlp1.linear_2": "mlp1.3",
}  # fmt: skip
# OpenGVLab's templates read only text.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def chat_config(name: str) -> dict[str, Any]:
    """Return config.json of the same model as OpenGVLab's InternVLChatModel."""
    values, most = config(name), processor(name)["max_patches"]
    vision = {
        **values["vision_config"], "model_type": "intern_vit_6b", "image_size": 48, "patch_size": 8,
    }  # fmt: skip
    vision["qkv_bias"], vision["qk_normalization"] = (
        vision.pop("attention_bias"), vision.pop("use_qk_norm")
    )  # fmt: skip
    return {
        "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
        "llm_config": values["text_config"], "vision_config": vision, "force_image_size": 48,
        "dynamic_image_size": True, "use_thumbnail": True, "min_dynamic_patch": 1,
        "max_dynamic_patch": most, "ps_version": "v2", "select_layer": -1, "downsample_ratio": 0.5,
        "template": "internvl2_5", "pad2square": False, "tie_word_embeddings": False,
    }  # fmt: skip


def chat_processor(name: str) -> dict[str, Any]:
    """Return preprocessor_config.json of the same model as OpenGVLab's InternVLChatModel."""
    kept = {key: processor(name)[key] for key in ("image_mean", "image_std", "resample")}
    return {
        **kept, "crop_size": 48, "size": 48, "do_center_crop": True, "do_normalize": True,
        "do_resize": True, "feature_extractor_type": "CLIPFeatureExtractor",
    }  # fmt: skip


def chat_tensors(drawn: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return a model's tensors as OpenGVLab's InternVLChatModel has them."""
    made: dict[str, NDArray[np.float32]] = {}
    for name, tensor in drawn.items():
        own = name.removeprefix("model.vision_tower.")
        if any(f".attention.{part}_proj." in own for part in "qkv"):
            if "q_proj" in own:
                parts = [drawn[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
                own = own.replace("encoder.layer.", "vision_model.encoder.layers.")
                made[own.replace("attention.q_proj", "attn.qkv")] = np.concatenate(parts)
            continue
        if own in _CHAT_ENDS:
            made[_CHAT_ENDS[own]] = tensor
            continue
        for before, after in _CHAT_PARTS.items():
            name = name.replace(before, after)
        made[name] = tensor
    return made


def as_internlm2(drawn: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a model with 4 heads and 2 key heads, its text model as InternLM 2."""
    names = {
        "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
        "language_model.lm_head": "language_model.output", "embed_tokens": "tok_embeddings",
    }  # fmt: skip
    made: dict[str, NDArray[np.float32]] = {}
    for name, tensor in drawn.items():
        if name.startswith("language_model."):
            if "self_attn.q_proj" in name:
                parts = [
                    drawn[name.replace("q_proj", f"{part}_proj")].reshape(2, count, -1, 48)
                    for part, count in (("q", 2), ("k", 1), ("v", 1))
                ]
                joined = np.concatenate(parts, axis=1).reshape(-1, 48)
                made[name.replace("self_attn.q_proj", "attention.wqkv")] = joined
            if "self_attn.o_proj" not in name and "self_attn." in name:
                continue
            for before, after in names.items():
                name = name.replace(before, after)
        made[name] = tensor
    return made
