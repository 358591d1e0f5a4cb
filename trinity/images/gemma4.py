"""gemma4v and gemma4uv: the vision models of Gemma 4. An image becomes about 280 rows.

Positions are a table for columns and one for rows, and rotations. Products may have limits of the
values before and after them. In models without embeddings for each layer, the rows of an image
attend to each other in layers with a window. The 12B (gemma4uv) has no tower.
Source: transformers' Gemma4ImageProcessor (its Pillow backend), Gemma4Processor, Gemma4VisionModel,
create_masks_for_vision_model and Gemma4UnifiedImageProcessor; llama.cpp,
tools/mtmd/models/gemma4v.cpp and gemma4uv.cpp, conversion/gemma.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images.family import ImageFamily, Joined
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import TowerConfig, pixel_limits
from trinity.images.tower_weights import PARTS, PATCHES, TowerWeights, channels_first

_BICUBIC = 3
_TOKENS = (70, 140, 280, 560, 1120)  # of an image, at most
_USUAL_TOKENS, _PATCH, _MERGE = 280, 16, 3
_THETA = 100.0
_TABLE = "v.position_embd.weight"


def _joined(config: TowerConfig, weights: TowerWeights) -> Joined:
    root, eps = np.float32(math.sqrt(config.hidden_size)), np.float32(config.layer_norm_eps)
    bias, scale = np.zeros(config.hidden_size, np.float32), np.ones(config.hidden_size, np.float32)
    if config.standardizes:
        bias = weights.vector("v.std_bias", config.hidden_size)
        scale = weights.vector("v.std_scale", config.hidden_size)

    def joined(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
        """Average each block, standardize the averages, and apply an RMS norm to them."""
        rows = (blocks.mean(axis=1, dtype=np.float32) * root - bias) * scale
        squares = np.mean(rows * rows, axis=1, keepdims=True, dtype=np.float32)
        normed: NDArray[np.float32] = rows / np.sqrt(squares + eps)
        return normed

    return joined


def _vision(vision: Values, config: Values) -> Values:
    """The object with the usual names. Raises UnsupportedError for other heads and rotations."""
    heads = vision.size("num_attention_heads", "num_heads")
    keys = vision.size("num_key_value_heads", "num_heads", heads)
    dim = vision.size("head_dim", "head_dim")
    if keys != heads or heads * dim != vision.size("hidden_size", "hidden_size"):
        raise UnsupportedError(
            f"{vision.source}: {heads} heads of {dim} values, {keys} of them for keys; trinity "
            "reads as many of keys, which make up hidden_size"
        )
    rope = vision.inner("rope_parameters")
    kind, theta = rope.text("rope_type", "axial"), rope.real("rope_theta", "rope_theta", _THETA)
    if kind not in ("axial", "default") or theta != _THETA:
        raise UnsupportedError(
            f"{rope.source}: rope_type is {kind!r:.40} and rope_theta {theta:g}; trinity reads "
            f"'axial' and {_THETA:g}"
        )
    size = vision.size("patch_size", "num_layers") * _pool(vision)
    named = {
        "hidden_act": vision.text("hidden_activation", "gelu_pytorch_tanh"),
        "layer_norm_eps": vision.real("rms_norm_eps", "rms_norm_eps"),
        "image_size": size,
    }
    return Values({**vision.values, **named}, vision.source)


def _pool(values: Values) -> int:
    return values.size("pooling_kernel_size", "num_layers", _MERGE)


def _more(vision: Values) -> dict[str, Any]:
    return {
        "positions": vision.size("position_embedding_size", "hidden_size"),
        "clips": vision.flag("use_clipped_linears"),
        "standardizes": vision.flag("standardize"),
    }


def _settings(values: Values) -> ImageSettings:
    patch, tokens = (
        values.size("patch_size", "num_layers"),
        values.size("max_soft_tokens", "hidden_size"),
    )
    if tokens not in _TOKENS:
        raise ConfigError(
            f"{values.source}: max_soft_tokens is {tokens}; it must be one of "
            f"{', '.join(map(str, _TOKENS))}"
        )
    unit = patch * _pool(values)
    least, most = pixel_limits(1, tokens * unit**2, patch)
    return ImageSettings(
        tile=0, longest_edge=0, splits=False,
        resample=values.size("resample", "num_layers", smallest=0),
        unit=unit, least_pixels=least, most_pixels=most,
    )  # fmt: skip


def _of_class(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors with patches in the order channel, y, x; the class has y, x, channel."""
    return {**tensors, PATCHES: channels_first(tensors[PATCHES])}


def _both_ways(text: ModelConfig, values: Values | None) -> bool:
    """Whether an image's rows attend to each other, which GGUF has no key for."""
    if values is None:
        return not text.per_layer_input_size
    own = values.inner("text_config")
    padding = own.size("pad_token_id", "vocab_size", 0, smallest=0)
    if text.per_layer_input_size and padding:  # whose embeddings rows of images have
        raise UnsupportedError(f"{own.source}: pad_token_id is {padding}; trinity reads 0")
    return own.text("use_bidirectional_attention", "") == "vision"


GEMMA4 = ImageFamily(
    name="gemma4v",
    class_names=("Gemma4ForConditionalGeneration",),
    mark="<|image|>",
    cut="filled",
    texts=lambda squares: ["<|image>", "<image|>"],
    projector=("mm.input_projection",),
    joined=_joined,
    prefixes=("model.", ""),
    ends={
        "v.patch_embd": "vision_tower.patch_embedder.input_proj",
        "v.position_embd": "vision_tower.patch_embedder.position_embedding_table",
        "mm.input_projection": "embed_vision.embedding_projection",
    },
    layer={
        "ln1": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "attn_out": "self_attn.o_proj",
        "attn_post_norm": "post_attention_layernorm",
        "ln2": "pre_feedforward_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "ffn_post_norm": "post_feedforward_layernorm",
    },
    layers="vision_tower.encoder.layers.{}.",
    optional={
        "v.std_bias": "vision_tower.std_bias",
        "v.std_scale": "vision_tower.std_scale",
    },
    parts=PARTS,
    merge=lambda values: _pool(values.inner("vision_config")),
    settings=_settings,
    usual_merge=_MERGE,
    usual_settings=ImageSettings(
        tile=0, longest_edge=0, splits=False, resample=_BICUBIC, unit=_PATCH * _MERGE,
        least_pixels=1, most_pixels=_USUAL_TOKENS * (_PATCH * _MERGE) ** 2,
    ),
    vision=_vision,
    more=_more,
    of_class=_of_class,
    positions="axes",
    norms=("rms",),
    activations=("gelu",),
    usual_activation="gelu",
    gated=True,
    head_norms=True,
    post_norms=True,
    last_norm=False,
    centers=True,
    rotates=True,
    rotates_halves=True,
    architecture="gemma4",
    both_ways=_both_ways,
    vision_defaults={
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
        "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64, "patch_size": _PATCH,
        "rms_norm_eps": 1e-6, "position_embedding_size": 10_240,
    },
    processor_defaults={
        "image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0], "resample": _BICUBIC,
        "patch_size": _PATCH, "pooling_kernel_size": _MERGE, "max_soft_tokens": _USUAL_TOKENS,
    },
)  # fmt: skip


def _vision_of_12b(vision: Values, config: Values) -> Values:
    """The object with the usual names; a patch is that of transformers' processor, merged."""
    size = vision.size("patch_size", "num_layers") * _pool(vision)
    named = {
        "hidden_size": vision.size("mm_embed_dim", "hidden_size"),
        "layer_norm_eps": vision.real("rms_norm_eps", "rms_norm_eps"),
        "patch_size": size,
        "image_size": size,
    }
    return Values({**vision.values, **named}, vision.source)


def _of_class_of_12b(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors as GGUF's files have them: patches in the order channel, y, x."""
    found = {**tensors, PATCHES: channels_first(tensors[PATCHES])}
    size = found[PATCHES].shape[-1]
    for part in ("weight", "bias"):
        stored = tensors[f"v.patch_norm.1.{part}"]
        if stored.shape != (3 * size * size,):
            raise ConfigError(f"{stored.where} has shape {stored.shape}; expected {3 * size**2}")
        values = stored.dequantize().reshape(size, size, 3).transpose(2, 0, 1).reshape(-1)
        found[stored.name] = _with_values(stored, values)
    table = tensors[_TABLE]
    if len(table.shape) != 3:
        raise ConfigError(f"{table.where} has shape {table.shape}; expected three axes")
    return {**found, _TABLE: _with_values(table, table.dequantize().swapaxes(0, 1))}


def _of_gguf_of_12b(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors with the weight of patches as a convolution."""
    if PATCHES not in tensors or len(tensors[PATCHES].shape) != 2:
        return tensors
    stored = tensors[PATCHES]
    n, values = stored.shape
    size = math.isqrt(values // 3)
    if values != 3 * size * size:
        raise ConfigError(f"{stored.where} has shape {stored.shape}; expected (n, 3 * size ** 2)")
    return {**tensors, PATCHES: replace(stored, shape=(n, 3, size, size))}


def _with_values(tensor: Tensor, values: NDArray[np.float32]) -> Tensor:
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return replace(tensor, shape=values.shape, type="F32", data=data)


def _both_ways_of_12b(text: ModelConfig, values: Values | None) -> bool:
    """As ``_both_ways``; the class has another default."""
    key = "use_bidirectional_attention"
    return values is None or values.inner("text_config").values.get(key, "vision") == "vision"


GEMMA4_12B = replace(
    GEMMA4,
    name="gemma4uv",
    class_names=("Gemma4UnifiedForConditionalGeneration",),
    joined=None,
    ends={
        "v.patch_embd": "embed_vision.patch_dense",
        "v.position_embd": "embed_vision.pos_embedding",
        "v.patch_norm.1": "embed_vision.patch_ln1",
        "v.patch_norm.2": "embed_vision.patch_ln2",
        "v.patch_norm.3": "embed_vision.pos_norm",
        "mm.input_projection": "embed_vision.multimodal_embedder.embedding_projection",
    },
    layer={},
    optional={},
    parts=(),
    merge=lambda values: 1,
    settings=lambda values: replace(_settings(values), torchvision=True),
    usual_settings=replace(GEMMA4.usual_settings, torchvision=True),
    vision=_vision_of_12b,
    more=lambda vision: {"positions": vision.size("mm_posemb_size", "hidden_size")},
    of_class=_of_class_of_12b,
    of_gguf=_of_gguf_of_12b,
    activations=("gelu", "gelu_erf"),
    only_projects=True,
    rotates=False,
    rotates_halves=False,
    both_ways=_both_ways_of_12b,
    vision_defaults={
        "patch_size": _PATCH, "pooling_kernel_size": _MERGE, "mm_embed_dim": 3840,
        "mm_posemb_size": 1120, "rms_norm_eps": 1e-6,
    },
)  # fmt: skip
