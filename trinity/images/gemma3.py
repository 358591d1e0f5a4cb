"""gemma3: the vision models of Gemma 3, whose images become one square of 256 rows.

With do_pan_and_scan, parts of a long image follow it, in a sentence.
The rows of an image attend to each other. Source: transformers' Gemma3ImageProcessor,
Gemma3Processor and Gemma3MultiModalProjector; llama.cpp, tools/mtmd/models/siglip.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images import siglip
from trinity.images.family import ImageFamily, Joined, Squares
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import TowerConfig
from trinity.images.tower_weights import TowerWeights

_BILINEAR = 2
_BEGIN, _END = "<start_of_image>", "<end_of_image>"
_PROJECTION = "mm.input_projection.weight"


def _texts(squares: Squares) -> list[str]:
    before, after = f"\n\n{_BEGIN}", f"{_END}\n\n"
    count = squares.rows * squares.columns
    if not count:
        return [before, after]
    crops = f"{after} and here are some crops to help you see better {before}"
    between = [f"{after} {before}"] * (count - 1)
    return [f"Here is the original image {before}", crops, *between, after]


def _joined(config: TowerConfig, weights: TowerWeights) -> Joined:
    weight = weights.vector("mm.soft_emb_norm.weight", config.hidden_size)
    eps = np.float32(config.layer_norm_eps)

    def joined(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
        """The RMS norm of the mean of each block."""
        means = blocks.mean(axis=1, dtype=np.float32)
        squares = np.mean(means * means, axis=1, keepdims=True, dtype=np.float32)
        normed: NDArray[np.float32] = means / np.sqrt(squares + eps) * weight
        return normed

    return joined


def _merge(values: Values) -> int:
    vision = values.inner("vision_config")
    rows = math.isqrt(values.size("mm_tokens_per_image", "hidden_size", 256))
    side = vision.size("image_size", "hidden_size", 224) // vision.size(
        "patch_size", "num_layers", 16
    )
    return max(side // rows, 1)


def _settings(values: Values) -> ImageSettings:
    scan = dict[str, Any]()
    if values.flag("do_pan_and_scan"):
        scan = {
            "most_crops": values.size("pan_and_scan_max_num_crops", "num_layers"),
            "least_crop": values.size("pan_and_scan_min_crop_size", "hidden_size"),
            "least_ratio": values.real("pan_and_scan_min_ratio_to_activate", "multiplier"),
        }
    size = values.inner("size").size("height", "hidden_size")
    resample = values.size("resample", "num_layers", smallest=0)
    return ImageSettings(tile=size, longest_edge=size, splits=False, resample=resample, **scan)


def _turned(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors with the projection as a linear; files have (inputs, outputs)."""
    if _PROJECTION not in tensors:
        return tensors
    stored = tensors[_PROJECTION]
    values = np.ascontiguousarray(stored.dequantize().T)
    data = values.reshape(-1).view(np.uint8)
    return {**tensors, _PROJECTION: replace(stored, shape=values.shape, type="F32", data=data)}


def _of_class(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors as GGUF's files have them: the class's norm lacks the 1."""
    name = "mm.soft_emb_norm.weight"
    stored = tensors[name]
    data = (stored.dequantize() + np.float32(1)).reshape(-1).view(np.uint8)
    return _turned({**tensors, name: replace(stored, type="F32", data=data)})


GEMMA3 = ImageFamily(
    name="gemma3",
    class_names=("Gemma3ForConditionalGeneration",),
    mark=_BEGIN,
    cut="scanned",
    texts=_texts,
    projector=("mm.input_projection",),
    joined=_joined,
    prefixes=siglip.PREFIXES,
    ends={
        **siglip.ENDS,
        "mm.soft_emb_norm": "multi_modal_projector.mm_soft_emb_norm",
        "mm.input_projection": "multi_modal_projector.mm_input_projection_weight",
    },
    layer=siglip.LAYER,
    layers=siglip.LAYERS,
    merge=_merge,
    settings=_settings,
    usual_merge=4,
    usual_settings=ImageSettings(tile=896, longest_edge=896, splits=False, resample=_BILINEAR),
    of_gguf=_turned,
    of_class=_of_class,
    architecture="gemma3",
    both_ways=lambda text, values: True,
    vision_defaults=siglip.DEFAULTS,
    processor_defaults={
        **siglip.CHANNELS, "size": {"height": 224, "width": 224}, "resample": _BILINEAR,
        "pan_and_scan_max_num_crops": 4, "pan_and_scan_min_crop_size": 256,
        "pan_and_scan_min_ratio_to_activate": 1.2,
    },
)  # fmt: skip
