"""Small vision models of MiniCPM-V: their configurations, names and shapes of their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.images.small_internvl_models import linear, text_shapes

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<unk>", "<image>", "</image>", "<slice>", "</slice>",
    "<image_id>", "</image_id>",
)  # fmt: skip
# OpenBMB's templates read only text.
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# V 2.5, V 2.6, V 4 and o 4.5, with their values of clip.minicpmv_version.
VERSIONS = {"minicpmv_25": 2, "minicpmv": 3, "minicpmv_4": 5, "minicpmo_45": 100045}
NAMES = tuple(VERSIONS)
PATCH, TILE = 8, 64
_TEXTS = {
    "minicpmv_25": "llama", "minicpmv": "qwen2", "minicpmv_4": "llama", "minicpmo_45": "qwen3",
}  # fmt: skip


def config(name: str) -> dict[str, Any]:
    """Return a model's config.json, whose text model has no object of its own."""
    is_o, width = name == "minicpmo_45", 256 if name == "minicpmo_45" else 128
    values: dict[str, Any] = {
        "architectures": ["MiniCPMO" if is_o else "MiniCPMV"],
        "model_type": "minicpmo" if is_o else "minicpmv", "hidden_size": width,
        "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "vocab_size": 256 + len(SPECIAL), "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048, "rope_theta": 1e4, "tie_word_embeddings": False,
        "query_num": 6 if name == "minicpmv_25" else 8, "image_size": TILE, "patch_size": PATCH,
        "slice_mode": True, "drop_vision_last_layer": name == "minicpmv_4",
        "vision_config": {
            "model_type": "idefics2" if name == "minicpmv_25" else "siglip_vision_model",
            "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
            "num_hidden_layers": 3 if name == "minicpmv_4" else 2, "image_size": 70 * PATCH,
            "patch_size": PATCH,
        },
    }  # fmt: skip
    versions = {"minicpmv": 2.6, "minicpmv_4": 4.0, "minicpmo_45": "4.5"}
    if name in versions:
        values["version"] = versions[name]
    if is_o:
        values["head_dim"] = 32
    if name == "minicpmv_4":
        factors = [1.0 + 0.1 * i for i in range(width // 8)]
        values["rope_scaling"] = {
            "rope_type": "longrope", "factor": 1.0, "short_factor": factors,
            "long_factor": factors, "original_max_position_embeddings": 2048,
        }  # fmt: skip
    return values


def text_config(name: str) -> dict[str, Any]:
    """Return the values of a model's text model, with its type."""
    return {**config(name), "model_type": _TEXTS[name]}


def processor(name: str) -> dict[str, Any]:
    """Return a model's preprocessor_config.json."""
    return {
        "image_processor_type": "MiniCPMVImageProcessor", "max_slice_nums": 9 if name !=
        "minicpmv_25" else 4, "scale_resolution": TILE, "patch_size": PATCH, "slice_mode": True,
        "use_image_id": name != "minicpmv_25", "norm_mean": [0.5] * 3, "norm_std": [0.5] * 3,
        "image_feature_size": config(name)["query_num"], "im_start": "<image>",
        "im_end": "</image>", "slice_start": "<slice>", "slice_end": "</slice>", "unk": "<unk>",
    }  # fmt: skip


def shapes(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    values = config(name)
    vision, width = values["vision_config"], values["hidden_size"]
    d, inner, size = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    yield "vpm.embeddings.patch_embedding.weight", (d, 3, size, size)
    yield "vpm.embeddings.patch_embedding.bias", (d,)
    yield "vpm.embeddings.position_embedding.weight", (70 * 70, d)
    for norm in ("weight", "bias"):
        yield f"vpm.post_layernorm.{norm}", (d,)
    for layer in range(vision["num_hidden_layers"] - values["drop_vision_last_layer"]):
        prefix = f"vpm.encoder.layers.{layer}."
        for module in ("layer_norm1", "layer_norm2"):
            for part in ("weight", "bias"):
                yield f"{prefix}{module}.{part}", (d,)
        for which in ("q", "k", "v", "out"):
            yield from linear(f"{prefix}self_attn.{which}_proj", d, d)
        yield from linear(f"{prefix}mlp.fc1", inner, d)
        yield from linear(f"{prefix}mlp.fc2", d, inner)
    yield "resampler.query", (values["query_num"], width)
    yield "resampler.proj", (width, width)
    yield "resampler.kv_proj.weight", (width, d)
    yield "resampler.attn.in_proj_weight", (3 * width, width)
    yield "resampler.attn.in_proj_bias", (3 * width,)
    yield from linear("resampler.attn.out_proj", width, width)
    for module in ("ln_q", "ln_kv", "ln_post"):
        for part in ("weight", "bias"):
            yield f"resampler.{module}.{part}", (width,)
    if name == "minicpmo_45":  # of its sound, which is not read
        yield "apm.conv1.weight", (4, 4, 3)
        yield "tts.emb_text.weight", (4, 4)
        yield "audio_projection_layer.linear1.weight", (4, 4)
    for own, shape in text_shapes(text_config(name)):
        yield (
            own.replace("model.language_model.", "llm.model.").replace("lm_head", "llm.lm_head"),
            shape,
        )


_ENDS = {
    "vpm.embeddings.patch_embedding": "v.patch_embd",
    "vpm.embeddings.position_embedding": "v.position_embd", "vpm.post_layernorm": "v.post_ln",
    "resampler.kv_proj": "resampler.kv", "resampler.attn.out_proj": "resampler.attn.out",
}  # fmt: skip
# The names of fc1 and fc2 are those of old files.
_LAYER = {
    "layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up",
}  # fmt: skip


def mmproj_tensors(
    drawn: dict[str, np.ndarray[Any, np.dtype[np.float32]]],
) -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.float32]]]]:
    """Names and tensors of the mmproj file, as llama.cpp's script for MiniCPM-V writes them."""
    for name, tensor in drawn.items():
        stem, _, part = name.rpartition(".")
        if name == "resampler.proj":
            yield "resampler.pos_embed_k", np.zeros((1, len(tensor)), np.float32)  # not read
            yield "resampler.proj.weight", np.ascontiguousarray(tensor.T)
        elif part.startswith("in_proj_"):
            for letter, piece in zip("qkv", np.split(tensor, 3), strict=True):
                yield f"{stem}.{letter}.{part.removeprefix('in_proj_')}", piece
        elif stem in _ENDS:
            yield f"{_ENDS[stem]}.{part}", tensor
        elif stem.startswith("vpm."):
            _, _, _, layer, module = stem.split(".", 4)
            yield f"v.blk.{layer}.{_LAYER[module]}.{part}", tensor
        elif stem.startswith("resampler"):
            yield name, tensor
