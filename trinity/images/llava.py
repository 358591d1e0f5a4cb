"""mlp: LLaVA 1.5, and LLaVA 1.6 (LLaVA-NeXT), which also sees an image as tiles.

The projector of Granite Vision, a LLaVA 1.6, reads the states after several layers.
In LLaVA 1.6, the rows of all tiles form lines, and the row v.image_newline ends each line. Rows
that show only the border around the image are dropped.
Source: transformers' CLIPImageProcessor and LlavaNextImageProcessor (their Pillow backends),
modeling_llava.py, modeling_llava_next.py and modeling_clip.py; llama.cpp,
tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py. llama.cpp's tower, by its code, omits
the last layer of files without feature_layer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images import siglip
from trinity.images.family import ImageFamily, Squares
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import TowerConfig

_BICUBIC = 3
_CLIP, _SIGLIP = "clip_vision_model", "siglip_vision_model"
NEWLINE, _OLD_NEWLINE = "v.image_newline", "model.image_newline"
_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def _vision(vision: Values, config: Values) -> Values:
    """The object with the number of layers up to the one that the projector reads."""
    kind = vision.text("model_type", _CLIP)
    if kind not in (_CLIP, _SIGLIP):
        raise UnsupportedError(
            f"{vision.source}: model_type is {kind!r:.40}; trinity reads {_CLIP} and {_SIGLIP}"
        )
    for key, usual, expected in (
        ("vision_feature_select_strategy", "default", "default" if kind == _CLIP else "full"),
        ("projector_hidden_act", "gelu", "gelu"),
    ):
        if config.text(key, usual) != expected:
            raise UnsupportedError(
                f"{config.source}: {key} is {config.text(key, usual)!r:.40}; trinity reads "
                f"{expected!r} with {kind}"
            )
    layers = vision.size("num_hidden_layers", "num_layers")
    given: Any = -2
    if config.has("vision_feature_layer"):
        given = config.values["vision_feature_layer"]
    numbers = given if isinstance(given, list) else [given]
    if not numbers or not all(
        type(number) is int and (0 < number <= layers or -layers <= number < 0)
        for number in numbers
    ):
        raise UnsupportedError(
            f"{config.source}: vision_feature_layer is {given!r:.40}; trinity reads layers from 1 "
            f"to {layers}"
        )
    features = [number if number > 0 else layers + 1 + number for number in numbers]
    both = {**vision.values, "num_hidden_layers": max(features), "features": features}
    return Values(both, vision.source)


def _more(vision: Values) -> dict[str, Any]:
    found = vision.values["features"]
    features = tuple(found) if isinstance(found, list) and len(found) > 1 else ()
    return {"class_token": vision.text("model_type", _CLIP) == _CLIP, "features": features}


def _row_scale(text: ModelConfig) -> float:
    """Granite multiplies rows of images as it does embeddings."""
    return text.embedding_scale or 1.0 if text.architecture == "granite" else 1.0


def _settings(values: Values) -> ImageSettings:
    """The settings of LLaVA 1.5: the middle of an image, or the image stretched to a square."""
    if values.flag("do_pad"):
        raise UnsupportedError(f"{values.source}: do_pad is true, which is not supported")
    size, edge = values.inner("size"), 0
    if size.has("shortest_edge"):
        edge, tile = size.size("shortest_edge", "hidden_size"), _crop(values)
        if edge < tile:
            raise UnsupportedError(
                f"{values.source}: images with a shorter side of {edge} pixels are less than their "
                f"crop_size of {tile}, which is not supported"
            )
    else:
        tile = _square(size)
    resample = values.size("resample", "num_layers", smallest=0)
    return ImageSettings(
        tile=tile, longest_edge=tile, splits=False, resample=resample, shortest_edge=edge
    )


def _settings_of_16(values: Values) -> ImageSettings:
    """The settings of LLaVA 1.6; ``pinpoints`` are the sizes that an image may get."""
    tile, size = _crop(values), values.inner("size")
    edge = size.size("shortest_edge", "hidden_size") if size.has("shortest_edge") else _square(size)
    if edge != tile:
        raise UnsupportedError(
            f"{values.source}: size and crop_size differ, which is not supported"
        )
    found = values.values["image_grid_pinpoints"]
    if (
        not isinstance(found, list)
        or not found
        or not all(
            isinstance(one, list) and len(one) == 2 and all(type(side) is int for side in one)
            for one in found
        )
    ):
        raise values.error("image_grid_pinpoints", "must be a list of heights and widths")
    resample = values.size("resample", "num_layers", smallest=0)
    return ImageSettings(
        tile=tile, longest_edge=tile, splits=True, resample=resample,
        pinpoints=tuple((height, width) for height, width in found),
    )  # fmt: skip


def _crop(values: Values) -> int:
    if not values.flag("do_center_crop", True):
        raise UnsupportedError(f"{values.source}: do_center_crop is false, which is not supported")
    return _square(values.inner("crop_size"))


def _square(size: Values) -> int:
    side = size.size("height", "hidden_size")
    if size.size("width", "hidden_size") != side:
        raise UnsupportedError(f"{size.source}: it is not square, which is not supported")
    return side


def _order(config: TowerConfig, squares: Squares) -> NDArray[np.int64] | None:
    """The rows of the whole image, then those of the tiles, line by line, with -1 after each line.

    Rows that show only the border around the image are dropped.
    """
    if not squares.rows:
        return None
    (width, height), side, tiles = squares.size, config.side, squares.rows * squares.columns
    parts = np.arange(tiles * side**2).reshape(squares.rows, squares.columns, side, side)
    grid = parts.swapaxes(1, 2).reshape(squares.rows * side, squares.columns * side)
    high, wide = grid.shape
    if width / height > wide / high:
        margin = (high - int(round(height * (wide / width), 7))) // 2
        grid = grid[margin : high - margin]
    else:
        margin = (wide - int(round(width * (high / height), 7))) // 2
        grid = grid[:, margin : wide - margin]
    lines = np.pad(grid, ((0, 0), (0, 1)), constant_values=-1)
    whole = np.arange(side**2) + tiles * side**2
    return np.concatenate([whole, lines.reshape(-1)])


def _checked(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors. Raises ConfigError if CLIP's norm before the layers is missing."""
    stored = tensors.get("v.class_embd")
    if stored is not None and "v.pre_ln.weight" not in tensors:
        raise ConfigError(
            f"{stored.source}: there is no tensor 'v.pre_ln.weight'; the file is incomplete"
        )
    if _OLD_NEWLINE not in tensors:
        return tensors
    return {(NEWLINE if name == _OLD_NEWLINE else name): t for name, t in tensors.items()}


def _variant(
    family: ImageFamily, names: Collection[str], metadata: Mapping[str, object], source: str
) -> ImageFamily:
    """The family of a GGUF file, whose keys name neither SigLIP's activation nor its resizing."""
    if "v.class_embd" in names:
        return family
    settings = replace(family.usual_settings, shortest_edge=0)
    return replace(family, activations=("gelu",), usual_activation="gelu", usual_settings=settings)


LLAVA = ImageFamily(
    name="mlp",
    class_names=("LlavaForConditionalGeneration",),
    mark="<image>",
    cut="anyres",
    order=_order,
    projector=("mm.0", "mm.2"),
    prefixes=siglip.PREFIXES,
    ends={
        **{name: own for name, own in siglip.ENDS.items() if name != "v.post_ln"},
        "mm.0": "multi_modal_projector.linear_1",
        "mm.2": "multi_modal_projector.linear_2",
    },
    optional={
        "v.class_embd": "embeddings.class_embedding",
        "v.pre_ln.weight": "pre_layrnorm.weight",
        "v.pre_ln.bias": "pre_layrnorm.bias",
        NEWLINE: "image_newline",
    },
    layer=siglip.LAYER,
    layers=siglip.LAYERS,
    settings=_settings,
    usual_settings=ImageSettings(
        tile=336, longest_edge=336, splits=True, resample=_BICUBIC, shortest_edge=336
    ),
    vision=_vision,
    more=_more,
    of_gguf=_checked,
    of_class=_checked,
    variant=_variant,
    row_scale=_row_scale,
    activations=("gelu_erf", "gelu", "gelu_quick"),
    pre_norm=True,
    last_norm=False,
    vision_defaults={
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 336, "patch_size": 14, "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
    },
    processor_defaults={
        "size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224},
        "resample": _BICUBIC, **siglip.CLIP_CHANNELS,
    },
)  # fmt: skip
LLAVA_NEXT = replace(
    LLAVA,
    class_names=("LlavaNextForConditionalGeneration",),
    settings=_settings_of_16,
    processor_defaults={**LLAVA.processor_defaults, "image_grid_pinpoints": _PINPOINTS},
)
