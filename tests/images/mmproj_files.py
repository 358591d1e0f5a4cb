"""Writes mmproj files of small vision models in the layout of llama.cpp's converters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.images import small_vision_models as small
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


def write_mmproj(name: str, path: Path, *, swapped: bool = False) -> Path:
    """Write a model's tower; ``swapped``: as old converters did."""
    values = small.config(name)
    vision = values["vision_config"]
    sizes = {
        "image_size": vision["image_size"], "patch_size": vision["patch_size"],
        "embedding_length": vision["hidden_size"],
        "feed_forward_length": vision["intermediate_size"],
        "block_count": vision["num_hidden_layers"],
        "attention.head_count": vision["num_attention_heads"],
        "projection_dim": values["text_config"]["hidden_size"], "projector.scale_factor": 2,
    }  # fmt: skip
    if name == "idefics3":
        sizes["preproc_image_size"] = small.processor(name)["size"]["longest_edge"]
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "clip")
        writer.add("general.type", "mmproj")
        writer.add("clip.has_vision_encoder", True)
        writer.add("clip.use_gelu", True)
        writer.add("clip.projector_type", name)
        for key, size in sizes.items():
            writer.add(f"clip.vision.{key}", np.uint32(size))
        writer.add("clip.vision.attention.layer_norm_epsilon", np.float32(1e-6))
        for key in ("image_mean", "image_std"):
            writer.add(f"clip.vision.{key}", np.full(3, 0.5, np.float32))
        for own, tensor in small.tensors(name).items():
            made = _gguf_name(own, swapped)
            if made is not None:
                stored = tensor + np.float32(1) if "soft_emb_norm" in own else tensor
                writer.add_tensor(made, stored.shape, "F32", stored)
    return path
