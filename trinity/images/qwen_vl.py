"""qwen3vl_merger, qwen2.5vl_merger and qwen2vl_merger: an image keeps about its size and shape.

The first is that of Qwen3-VL, and of Qwen 3.5 and 3.6. Images have positions in time, height and
width in the text model. In Qwen3-VL, states of some of the tower's layers are added after the first
layers of the text model (deepstack). In Qwen2.5-VL, most layers see windows.
Source: transformers' Qwen2VLImageProcessor (its Pillow backend), modeling_qwen3_vl.py,
modeling_qwen2_5_vl.py and modeling_qwen2_vl.py; llama.cpp, tools/mtmd/models/qwen3vl.cpp and
qwen2vl.cpp, conversion/qwen3vl.py and qwenvl.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images import siglip
from trinity.images.family import ImageFamily
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import MOST_ROWS, pixel_limits

_BICUBIC = 3
_NOMINAL = 40  # patches along a side
_WINDOW = 112  # pixels
_PATCHES, _SECOND = "v.patch_embd.weight", "v.patch_embd.weight.1"


def _settings(values: Values) -> ImageSettings:
    """The settings of the processor; at most ``MOST_ROWS`` patches, whatever it says."""
    patch, merge = (values.size(key, "num_layers") for key in ("patch_size", "merge_size"))
    size = values.inner("size")
    limits = [
        (values if values.has(name) else size).size(
            name if values.has(name) else edge, "image_pixels"
        )
        for name, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
    ]
    least, most = pixel_limits(limits[0], limits[1], patch)
    return ImageSettings(
        tile=0, longest_edge=0, splits=False,
        resample=values.size("resample", "num_layers", smallest=0),
        unit=patch * merge, least_pixels=least, most_pixels=most,
    )  # fmt: skip


def _vision(vision: Values, config: Values) -> Values:
    """The object with the usual names; its table of positions is for a nominal image."""
    side = math.isqrt(vision.size("num_position_embeddings", "image_pixels"))
    layers = vision.values.get("deepstack_visual_indexes")
    if layers is None:
        of_3 = vision.text("model_type", "").startswith("qwen3_vl")
        layers = [8, 16, 24] if of_3 else []
    both = {**vision.values, "deepstack_visual_indexes": layers}
    return _named(Values(both, vision.source), side)


def _named(vision: Values, side: int) -> Values:
    """The object with the usual names; a nominal image has ``side`` x ``side`` patches."""
    if vision.size("temporal_patch_size", "num_layers", 2) != 2:
        raise vision.error("temporal_patch_size", "must be 2")
    named = {
        "num_hidden_layers": vision.values.get("depth"),
        "num_attention_heads": vision.values.get("num_heads"),
        "image_size": side * vision.size("patch_size", "num_layers"),
    }
    return Values({**vision.values, **named}, vision.source)


def _of_class(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors with one convolution (n, 3, patch_size, patch_size).

    It is the sum of those of the two frames of a video, which a still image has twice.
    """
    stored = tensors[_PATCHES]
    shape = stored.shape
    if len(shape) != 5 or shape[2] != 2:
        raise ConfigError(f"{stored.where} has shape {shape}; expected (n, 3, 2, height, width)")
    return {**tensors, _PATCHES: _with_values(stored, stored.dequantize().sum(axis=2))}


def _of_gguf(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors as ``_of_class`` does; a GGUF file has one tensor for each frame."""
    if _PATCHES not in tensors:  # only some tensors are asked for
        return tensors
    stored, second = tensors[_PATCHES], tensors.get(_SECOND)
    if second is None or second.shape != stored.shape:
        raise ConfigError(f"{stored.source}: there is no tensor {_SECOND!r} of the same shape")
    kept = {name: tensor for name, tensor in tensors.items() if name != _SECOND}
    return {**kept, _PATCHES: _with_values(stored, stored.dequantize() + second.dequantize())}


def _with_values(tensor: Tensor, values: NDArray[np.float32]) -> Tensor:
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return replace(tensor, shape=values.shape, type="F32", data=data)


def _vision_of_2(vision: Values, config: Values) -> Values:
    """Qwen2-VL's configuration; its own ``hidden_size`` is that of the text model."""
    width = vision.size("embed_dim", "hidden_size", 1280)
    inner = int(width * vision.real("mlp_ratio", "multiplier", 4.0))
    both = {**vision.values, "hidden_size": width, "intermediate_size": inner}
    return _named(Values(both, vision.source), _NOMINAL)


def _vision_of_25(vision: Values, config: Values) -> Values:
    """Qwen2.5-VL's configuration; ``window`` is the side of a window in blocks of patches."""
    sizes = ("patch_size", "num_layers", 14), ("spatial_merge_size", "num_layers", 2)
    patch, merge = (vision.size(*size) for size in sizes)
    window = max(vision.size("window_size", "hidden_size", _WINDOW) // merge // patch, 1)
    return _named(Values({**vision.values, "window": window}, vision.source), _NOMINAL)


_MERGER = {"norm": "norm", "fc1": "linear_fc1", "fc2": "linear_fc2"}
_LAYER = {"ln1": "norm1", "ln2": "norm2", "attn_qkv": "attn.qkv", "attn_out": "attn.proj"}
_ENDS_OF_2 = {
    "v.patch_embd": "patch_embed.proj",
    "v.post_ln": "merger.ln_q",
    "mm.0": "merger.mlp.0",
    "mm.2": "merger.mlp.2",
}
QWEN3VL = ImageFamily(
    name="qwen3vl_merger",
    class_names=(
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    ),
    mark="<|image_pad|>",
    around=("<|vision_start|>", "<|vision_end|>"),
    cut="rectangle",
    projector=("mm.0", "mm.2"),
    prefixes=("model.visual.", "visual."),
    ends={
        "v.patch_embd": "patch_embed.proj",
        "v.position_embd": "pos_embed",
        "v.post_ln": "merger.norm",
        "mm.0": "merger.linear_fc1",
        "mm.2": "merger.linear_fc2",
    },
    layer={**_LAYER, "ffn_up": "mlp.linear_fc1", "ffn_down": "mlp.linear_fc2"},
    layers="blocks.{}.",
    deepstack={name: f"deepstack_merger_list.{{}}.{own}" for name, own in _MERGER.items()},
    merge=lambda values: values.inner("vision_config").size("spatial_merge_size", "num_layers", 2),
    merge_key="spatial_merge_size",
    settings=_settings,
    usual_merge=2,
    usual_settings=ImageSettings(
        tile=0, longest_edge=0, splits=False, resample=_BICUBIC,
        unit=32, least_pixels=1 << 16, most_pixels=MOST_ROWS << 8,
    ),
    vision=_vision,
    of_gguf=_of_gguf,
    of_class=_of_class,
    positions="resized",
    rotates=True,
    axes=True,
    vision_defaults={
        "hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "num_heads": 16,
        "patch_size": 16, "num_position_embeddings": 2304, "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    },
    processor_defaults={
        "size": {"shortest_edge": 1 << 16, "longest_edge": 1 << 24}, **siglip.CHANNELS,
        "resample": _BICUBIC, "patch_size": 16, "merge_size": 2,
    },
)  # fmt: skip
QWEN2VL = replace(
    QWEN3VL,
    name="qwen2vl_merger",
    class_names=("Qwen2VLForConditionalGeneration",),
    ends=_ENDS_OF_2,
    layer={**_LAYER, "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    deepstack={},
    usual_settings=replace(QWEN3VL.usual_settings, unit=28, least_pixels=56 * 56),
    vision=_vision_of_2,
    positions="none",
    vision_defaults={
        "depth": 32, "num_heads": 16, "patch_size": 14, "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-6,
    },
    processor_defaults={
        "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}, **siglip.CLIP_CHANNELS,
        "resample": _BICUBIC, "patch_size": 14, "merge_size": 2,
    },
)  # fmt: skip
QWEN25VL = replace(
    QWEN2VL,
    name="qwen2.5vl_merger",
    class_names=("Qwen2_5_VLForConditionalGeneration",),
    layer={
        **_LAYER,
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    vision=_vision_of_25,
    window=_WINDOW,
    norms=("rms",),
    activations=("silu",),
    gated=True,
    vision_defaults={
        "hidden_size": 3584, "intermediate_size": 3420, "depth": 32, "num_heads": 16,
        "patch_size": 14, "hidden_act": "silu", "layer_norm_eps": 1e-6,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
)  # fmt: skip
