"""Writes mmproj files of small vision models in the layout of llama.cpp's converters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.images import small_gemma4_models as gemma4
from tests.images import small_internvl_models as internvl
from tests.images import small_lfm2_models as lfm2
from tests.images import small_llava_models as llava
from tests.images import small_minicpm_models as minicpm
from tests.images import small_pixtral_models as pixtral
from tests.images import small_qwen_models as qwen
from tests.images import small_vision_models as small
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter

_ENDS = {
    "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.position_embedding": "v.position_embd",
    "post_layernorm": "v.post_ln",
}
_LAYER = {
    "layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
}  # fmt: skip
_OLD = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}


def _gguf_name(name: str, swapped: bool) -> str | None:
    """The name of a tensor of the class; None for the text model's."""
    if "connector" in name:
        return "mm.model.fc.weight"
    if "mm_input_projection" in name:
        return "mm.input_projection.weight"
    if "mm_soft_emb_norm" in name:
        return "mm.soft_emb_norm.weight"
    if "vision" not in name:
        return None
    stem, _, part = name.rpartition(".")
    own = stem.partition("vision_model.")[2]
    if own in _ENDS:
        return f"{_ENDS[own]}.{part}"
    _, _, layer, module = own.split(".", 3)
    made = _LAYER[module]
    return f"v.blk.{layer}.{_OLD.get(made, made) if swapped else made}.{part}"


_QWEN_ENDS = {
    "patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd", "merger.norm": "v.post_ln",
    "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "merger.ln_q": "v.post_ln",
    "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2",
}  # fmt: skip
_QWEN_LAYER = {
    "norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down", "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
_QWEN_KINDS = {"qwen25vl": ("qwen2.5vl_merger", "silu"), "qwen2vl": ("qwen2vl_merger", "")}
_QWEN_DEEPSTACK = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}


def _qwen_name(name: str, deepstack: list[int]) -> str | None:
    """As ``_gguf_name``, for Qwen's models."""
    if "visual" not in name:
        return None
    stem, _, part = name.partition("visual.")[2].rpartition(".")
    if stem in _QWEN_ENDS:
        return f"{_QWEN_ENDS[stem]}.{part}"
    kind, number, module = stem.split(".", 2)
    if kind == "deepstack_merger_list":
        return f"v.deepstack.{deepstack[int(number)]}.{_QWEN_DEEPSTACK[module]}.{part}"
    return f"v.blk.{number}.{_QWEN_LAYER[module]}.{part}"


def _write_qwen(name: str, path: Path) -> Path:
    values, processor = small.config(name), small.processor(name)
    vision = values["vision_config"]
    deepstack = vision.get("deepstack_visual_indexes", [])
    side = int(vision["num_position_embeddings"] ** 0.5)
    sizes = {
        "image_size": side * vision["patch_size"], "patch_size": vision["patch_size"],
        "embedding_length": 32, "block_count": vision["depth"],
        "feed_forward_length": 64 if name == "qwen2vl" else vision["intermediate_size"],
        "attention.head_count": vision["num_heads"], "projection_dim": vision["out_hidden_size"],
        "image_min_pixels": processor["size"]["shortest_edge"],
        "image_max_pixels": processor["size"]["longest_edge"],
    }  # fmt: skip
    if name in qwen.OF_2:
        sizes |= {"window_size": 32, "n_wa_pattern": 2} if name == "qwen25vl" else {}
    else:
        sizes["spatial_merge_size"] = vision["spatial_merge_size"]
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("general.type", "mmproj")
        writer.add("clip.has_vision_encoder", True)
        projector, activation = _QWEN_KINDS.get(name, ("qwen3vl_merger", "gelu"))
        if activation:
            writer.add(f"clip.use_{activation}", True)
        writer.add("clip.projector_type", projector)
        for key, size in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(size))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(1e-6))
        layers = np.array([layer in deepstack for layer in range(vision["depth"])])
        writer.add("clip.vision.is_deepstack_layers", layers)
        for key in ("image_mean", "image_std"):
            writer.add(f"clip.vision.{key}", np.full(3, 0.5, np.float32))
        for own, tensor in small.tensors(name).items():
            made = _qwen_name(own, deepstack)
            if made == "v.patch_embd.weight":
                for frame, suffix in ((0, ""), (1, ".1")):
                    stored = np.ascontiguousarray(tensor[:, :, frame])
                    writer.add_tensor(made + suffix, stored.shape, "F32", stored)
            elif made is not None and "attn_qkv" in made and name in qwen.OF_2:
                for part, letter in zip(np.split(tensor, 3), "qkv", strict=True):
                    writer.add_tensor(made.replace("qkv", letter), part.shape, "F32", part)
            elif made is not None:
                writer.add_tensor(made, tensor.shape, "F32", tensor)
    return path


_GEMMA4_ENDS = {
    "patch_embedder.input_proj.weight": "v.patch_embd.weight",
    "patch_embedder.position_embedding_table": "v.position_embd.weight",
    "std_bias": "v.std_bias", "std_scale": "v.std_scale",
}  # fmt: skip
_GEMMA4_LAYER = {
    "input_layernorm": "ln1", "post_attention_layernorm": "attn_post_norm",
    "pre_feedforward_layernorm": "ln2", "post_feedforward_layernorm": "ffn_post_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_out", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def _gemma4_name(name: str) -> str | None:
    """As ``_gguf_name``, for Gemma 4's models."""
    if "embed_vision" in name:
        return "mm.input_projection.weight"
    own = name.partition("vision_tower.")[2]
    if not own or own in _GEMMA4_ENDS:
        return _GEMMA4_ENDS.get(own)
    _, _, layer, module = own.replace(".linear.", ".").split(".", 3)
    stem, _, part = module.rpartition(".")
    return f"v.blk.{layer}.{_GEMMA4_LAYER[stem]}.{part}"


_GEMMA4_12B = {
    "patch_dense": "v.patch_embd", "patch_ln1": "v.patch_norm.1", "patch_ln2": "v.patch_norm.2",
    "pos_norm": "v.patch_norm.3", "multimodal_embedder.embedding_projection": "mm.input_projection",
}  # fmt: skip


def _write_gemma4_12b(path: Path) -> Path:
    """Write keys of 0 for the layers, as llama.cpp's converter does; the patches are merged."""
    sizes = {
        "image_size": 224, "patch_size": 4, "embedding_length": 40, "feed_forward_length": 0,
        "block_count": 0, "attention.head_count": 0, "projection_dim": 48,
        "projector.scale_factor": 2, "image_max_pixels": 70 * 8**2,
    }  # fmt: skip
    processor = small.processor("gemma4_12b")
    with GGUFWriter(path) as writer:
        _write_keys(writer, "gemma4uv", sizes, processor)
        for own, tensor in small.tensors("gemma4_12b").items():
            stem, _, part = own.partition("embed_vision.")[2].rpartition(".")
            if "embed_vision." not in own:
                continue
            if "pos_embedding" in own:
                made, tensor = "v.position_embd.weight", tensor.swapaxes(0, 1)
            else:
                made = f"{_GEMMA4_12B[stem]}.{part}"
            if own.endswith(("patch_dense.weight", "patch_ln1.weight", "patch_ln1.bias")):
                turned = tensor.reshape(-1, 8, 8, 3).transpose(0, 3, 1, 2)
                tensor = turned.reshape(tensor.shape)
            writer.add_tensor(made, tensor.shape, "F32", np.ascontiguousarray(tensor))
    return path


def _write_gemma4(name: str, path: Path) -> Path:
    values = small.config(name)
    vision = values["vision_config"]
    size, merge = vision["patch_size"], vision["pooling_kernel_size"]
    sizes = {
        "image_size": 224, "patch_size": size, "embedding_length": vision["hidden_size"],
        "feed_forward_length": vision["intermediate_size"],
        "block_count": vision["num_hidden_layers"],
        "attention.head_count": vision["num_attention_heads"],
        "projection_dim": values["text_config"]["hidden_size"], "projector.scale_factor": merge,
        "image_max_pixels": 70 * (size * merge) ** 2,
    }  # fmt: skip
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("general.type", "mmproj")
        writer.add("clip.has_vision_encoder", True)
        writer.add("clip.vision.projector_type", "gemma4v")
        for key, number in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(number))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(1e-6))
        writer.add("clip.vision.image_mean", np.zeros(3, np.float32))
        writer.add("clip.vision.image_std", np.ones(3, np.float32))
        for own, tensor in small.tensors(name).items():
            made = _gemma4_name(own)
            stored = np.atleast_1d(tensor)
            if made == "v.patch_embd.weight":
                stored = stored.reshape(-1, size, size, 3).transpose(0, 3, 1, 2)
            if made is not None:
                writer.add_tensor(made, stored.shape, "F32", np.ascontiguousarray(stored))
    return path


_PIXTRAL_ENDS = {
    "vision_tower.patch_conv": "v.patch_embd", "vision_tower.ln_pre": "v.pre_ln",
    "multi_modal_projector.norm": "mm.input_norm",
    "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
    "multi_modal_projector.linear_1": "mm.1", "multi_modal_projector.linear_2": "mm.2",
}  # fmt: skip
_PIXTRAL_LAYER = {
    "attention_norm": "ln1", "ffn_norm": "ln2", "attention.q_proj": "attn_q",
    "attention.k_proj": "attn_k", "attention.v_proj": "attn_v", "attention.o_proj": "attn_out",
    "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}  # fmt: skip


def _pixtral_name(name: str) -> str | None:
    """As ``_gguf_name``, for Mistral's models."""
    stem, _, part = name.removeprefix("model.").rpartition(".")
    if stem in _PIXTRAL_ENDS:
        return f"{_PIXTRAL_ENDS[stem]}.{part}"
    if not stem.startswith("vision_tower."):
        return None
    _, _, _, layer, module = stem.split(".", 4)
    return f"v.blk.{layer}.{_PIXTRAL_LAYER[module]}.{part}"


def _write_pixtral(name: str, path: Path) -> Path:
    values = small.config(name)
    vision, processor = values["vision_config"], small.processor(name)
    heads = vision["num_attention_heads"]
    sizes = {
        "image_size": vision["image_size"], "patch_size": vision["patch_size"],
        "embedding_length": vision["hidden_size"], "block_count": vision["num_hidden_layers"],
        "feed_forward_length": vision["intermediate_size"], "attention.head_count": heads,
        "projection_dim": values["text_config"]["hidden_size"],
    }  # fmt: skip
    if "spatial_merge_size" in values:
        sizes["spatial_merge_size"] = values["spatial_merge_size"]
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("general.type", "mmproj")
        writer.add("clip.has_vision_encoder", True)
        writer.add("clip.projector_type", "pixtral")
        writer.add("clip.use_silu", True)
        for key, number in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(number))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(1e-5))
        for key in ("image_mean", "image_std"):
            writer.add(f"clip.vision.{key}", np.array(processor[key], np.float32))
        for own, tensor in small.tensors(name).items():
            made = _pixtral_name(own)
            if made is not None and made.endswith(("attn_q.weight", "attn_k.weight")):
                halves = tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2)
                tensor = np.ascontiguousarray(halves).reshape(tensor.shape)
            if made is not None:
                writer.add_tensor(made, tensor.shape, "F32", tensor)
            elif own.endswith("embed_tokens.weight"):
                row = tensor[256 + small.SPECIAL[name].index("[IMG_BREAK]")]
                writer.add_tensor("v.token_embd.img_break", row.shape, "F32", row)
    return path


_INTERNVL_ENDS = {
    "embeddings.cls_token": "v.class_embd",
    "embeddings.position_embeddings": "v.position_embd.weight",
    "embeddings.patch_embeddings.projection.weight": "v.patch_embd.weight",
    "embeddings.patch_embeddings.projection.bias": "v.patch_embd.bias",
}  # fmt: skip
_INTERNVL_LAYER = {
    "layernorm_before": "ln1", "layernorm_after": "ln2", "lambda_1": "ls1", "lambda_2": "ls2",
    "attention.q_proj": "attn_q", "attention.k_proj": "attn_k", "attention.v_proj": "attn_v",
    "attention.q_norm": "attn_q_norm", "attention.k_norm": "attn_k_norm",
    "attention.projection_layer": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
}  # fmt: skip
_INTERNVL_PROJECTOR = {"layer_norm": "0", "linear_1": "1", "linear_2": "3"}


def _internvl_name(name: str) -> str | None:
    """As ``_gguf_name``, for InternVL's models."""
    if "multi_modal_projector." in name:
        stem, _, part = name.rpartition("projector.")[2].partition(".")
        return f"mm.model.mlp.{_INTERNVL_PROJECTOR[stem]}.{part}"
    own = name.partition("vision_tower.")[2]
    if not own or own in _INTERNVL_ENDS:
        return _INTERNVL_ENDS.get(own)
    _, _, layer, module = own.split(".", 3)
    stem, dot, part = module.rpartition(".")
    stem, part = (stem, part) if dot else (part, "weight")
    return f"v.blk.{layer}.{_INTERNVL_LAYER[stem]}.{part}"


def _write_internvl(name: str, path: Path) -> Path:
    vision, processor = small.config(name)["vision_config"], small.processor(name)
    sizes = _sizes(name) | {
        "image_size": vision["image_size"][0], "patch_size": vision["patch_size"][0],
        "projector.scale_factor": 2, "preproc_min_tiles": processor["min_patches"],
        "preproc_max_tiles": processor["max_patches"],
    }  # fmt: skip
    with GGUFWriter(path) as writer:
        _write_keys(writer, "internvl", sizes, processor)
        writer.add("clip.use_gelu", True)
        for own, tensor in small.tensors(name).items():
            made = _internvl_name(own)
            if made is not None:
                writer.add_tensor(made, tensor.shape, "F32", tensor)
    return path


_LLAVA_NAMES = {
    "model.multi_modal_projector.linear_1": "mm.0", "model.multi_modal_projector.linear_2": "mm.2",
    "model.vision_tower.embeddings.patch_embedding": "v.patch_embd",
    "model.vision_tower.embeddings.position_embedding": "v.position_embd",
    "model.vision_tower.pre_layrnorm": "v.pre_ln",
}  # fmt: skip
_LLAVA_VECTORS = {  # names without ".weight"
    "model.image_newline": "model.image_newline",
    "model.vision_tower.embeddings.class_embedding": "v.class_embd",
}  # fmt: skip


def _llava_name(name: str, layers: int) -> str | None:
    """As ``_gguf_name``, for LLaVA's models and the layers that their projector reads."""
    stem, _, part = name.rpartition(".")
    if name in _LLAVA_VECTORS:
        return _LLAVA_VECTORS[name]
    if stem in _LLAVA_NAMES:
        return f"{_LLAVA_NAMES[stem]}.{part}"
    _, found, rest = stem.partition("vision_tower.encoder.layers.")
    layer, _, module = rest.partition(".")
    if not found or int(layer) >= layers:
        return None
    made = _LAYER[module]
    return f"v.blk.{layer}.{_OLD.get(made, made)}.{part}"


def _write_llava(name: str, path: Path) -> Path:
    """Write what llama.cpp's script for LLaVA does, with the file's own names in 1.6."""
    config, processor = small.config(name), small.processor(name)
    is_granite = name == "granite_vision"
    sizes = _sizes(name) | {"block_count": 3 if is_granite else 2}
    with GGUFWriter(path) as writer:
        _write_keys(writer, "mlp", sizes, processor, eps=config["vision_config"]["layer_norm_eps"])
        writer.add("clip.has_llava_projector", True)
        writer.add("clip.use_gelu", False)
        if name in llava.NEXT:
            pinpoints = np.array(processor["image_grid_pinpoints"], np.int32).reshape(-1)
            writer.add("clip.vision.image_grid_pinpoints", pinpoints)
            features = np.array([1, 3] if is_granite else [2], np.int32)
            writer.add("clip.vision.feature_layer", features)
            writer.add("clip.vision.mm_patch_merge_type", "spatial_unpad")
        for own, tensor in small.tensors(name).items():
            made = _llava_name(own, sizes["block_count"])
            if made is not None:
                writer.add_tensor(made, tensor.shape, "F32", tensor)
    return path


def _sizes(name: str) -> dict[str, int]:
    """The usual sizes of a model."""
    values = small.config(name)
    vision = values["vision_config"]
    return {
        "image_size": vision["image_size"], "patch_size": vision["patch_size"],
        "embedding_length": vision["hidden_size"],
        "feed_forward_length": vision["intermediate_size"],
        "block_count": vision["num_hidden_layers"],
        "attention.head_count": vision["num_attention_heads"],
        "projection_dim": values["text_config"]["hidden_size"],
    }  # fmt: skip


def _write_keys(
    writer: GGUFWriter, projector: str, sizes: Mapping[str, int], processor: dict[str, Any],
    eps: float = 1e-6,
) -> None:  # fmt: skip
    writer.add("general.architecture", "clip")
    writer.add("general.type", "mmproj")
    writer.add("clip.has_vision_encoder", True)
    writer.add("clip.projector_type", projector)
    for key, size in sizes.items():
        writer.add(f"clip.vision.{key}", np.uint32(size))
    writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(eps))
    for key in ("image_mean", "image_std"):
        writer.add(f"clip.vision.{key}", np.array(processor[key], np.float32))


_LFM2_ENDS = {
    "layer_norm": "mm.input_norm", "linear_1": "mm.1", "linear_2": "mm.2",
}  # fmt: skip


def _lfm2_name(name: str) -> str | None:
    """As ``_gguf_name``, for LFM2-VL."""
    stem, _, part = name.removeprefix("model.").rpartition(".")
    tower, _, own = stem.partition(".")
    if tower == "multi_modal_projector":
        return f"{_LFM2_ENDS[own]}.{part}"
    if tower != "vision_tower":
        return None
    if own in _ENDS:
        return f"{_ENDS[own]}.{part}"
    _, _, layer, module = own.split(".", 3)
    return f"v.blk.{layer}.{_LAYER[module]}.{part}"


def _write_lfm2(name: str, path: Path) -> Path:
    values, processor = small.config(name), small.processor(name)
    vision, size = values["vision_config"], values["vision_config"]["patch_size"]
    unit = size * values["downsample_factor"]
    sizes = {
        "image_size": int(vision["num_patches"] ** 0.5) * size, "patch_size": size,
        "embedding_length": vision["hidden_size"], "block_count": vision["num_hidden_layers"],
        "feed_forward_length": vision["intermediate_size"],
        "attention.head_count": vision["num_attention_heads"],
        "projection_dim": values["text_config"]["hidden_size"],
        "projector.scale_factor": values["downsample_factor"],
        "image_min_pixels": processor["min_image_tokens"] * unit**2,
        "image_max_pixels": processor["max_image_tokens"] * unit**2,
        "preproc_image_size": processor["tile_size"],
        "preproc_min_tiles": processor["min_tiles"], "preproc_max_tiles": processor["max_tiles"],
    }  # fmt: skip
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("general.type", "mmproj")
        writer.add("clip.has_vision_encoder", True)
        writer.add("clip.projector_type", "lfm2")
        writer.add("clip.use_gelu", True)
        for key, number in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(number))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(1e-6))
        for key in ("image_mean", "image_std"):
            writer.add(f"clip.vision.{key}", np.full(3, 0.5, np.float32))
        for own, tensor in small.tensors(name).items():
            made = _lfm2_name(own)
            if made == "v.patch_embd.weight":
                tensor = tensor.reshape(-1, size, size, 3).transpose(0, 3, 1, 2)
            if made is not None:
                writer.add_tensor(made, tensor.shape, "F32", np.ascontiguousarray(tensor))
    return path


def _write_minicpm(name: str, path: Path) -> Path:
    """Write what llama.cpp's script for MiniCPM-V does."""
    values, drawn = small.config(name), small.tensors(name)
    vision = values["vision_config"]
    sizes = {
        "image_size": values["image_size"], "patch_size": vision["patch_size"],
        "embedding_length": vision["hidden_size"], "projection_dim": 0,
        "feed_forward_length": vision["intermediate_size"], "block_count": 2,
        "attention.head_count": vision["num_attention_heads"],
    }  # fmt: skip
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("clip.has_text_encoder", False)
        writer.add("clip.has_vision_encoder", True)
        writer.add("clip.has_minicpmv_projector", True)
        writer.add("clip.projector_type", "resampler")
        writer.add("clip.minicpmv_version", np.int32(minicpm.VERSIONS[name]))
        writer.add("clip.minicpmv_query_num", np.uint32(values["query_num"]))
        writer.add("clip.use_gelu", True)
        for key, size in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(size))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(1e-6))
        for key in ("image_mean", "image_std"):
            writer.add(f"clip.vision.{key}", np.full(3, 0.5, np.float32))
        for own, tensor in minicpm.mmproj_tensors(drawn):
            writer.add_tensor(own, tensor.shape, "F32", tensor)
    return path


def write_mmproj(name: str, path: Path, *, swapped: bool = False) -> Path:
    """Write a model's tower; ``swapped``: as old converters did."""
    if name in qwen.NAMES:
        return _write_qwen(name, path)
    if name == "gemma4_12b":
        return _write_gemma4_12b(path)
    if name in gemma4.NAMES:
        return _write_gemma4(name, path)
    if name in pixtral.NAMES:
        return _write_pixtral(name, path)
    if name in lfm2.NAMES:
        return _write_lfm2(name, path)
    if name in internvl.NAMES:
        return _write_internvl(name, path)
    if name in minicpm.NAMES:
        return _write_minicpm(name, path)
    if name in llava.NAMES:
        return _write_llava(name, path)
    processor = small.processor(name)
    sizes = _sizes(name) | {"projector.scale_factor": 2}
    if name == "idefics3":
        sizes["preproc_image_size"] = processor["size"]["longest_edge"]
    with GGUFWriter(path) as writer:
        _write_keys(writer, name, sizes, processor)
        writer.add("clip.use_gelu", True)
        for own, tensor in small.tensors(name).items():
            made = _gguf_name(own, swapped)
            if made is not None:
                stored = tensor + np.float32(1) if "soft_emb_norm" in own else tensor
                writer.add_tensor(made, stored.shape, "F32", stored)
    return path


def write_changed_mmproj(name: str, path: Path, tensors: Mapping[str, np.ndarray | None]) -> Path:
    """Write the mmproj file of a model with other tensors; None: without this one."""
    made = path.with_suffix(".changed.gguf")
    with GGUFProvider(write_mmproj(name, path)) as sound, GGUFWriter(made) as writer:
        for key, value in sound.metadata.items():
            if not key.startswith("GGUF"):
                writer.add(key, np.uint32(value) if type(value) is int else value)
        known = {key: sound.tensor(key).dequantize() for key in sound.tensor_names()}
        for key, tensor in {**known, **tensors}.items():
            if tensor is not None:
                writer.add_tensor(key, tensor.shape, "F32", np.ascontiguousarray(tensor))
    return made
