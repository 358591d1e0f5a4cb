"""lfm2: LFM2-VL. A large image becomes a grid of tiles and a small whole, another one rectangle.

Source: transformers' Lfm2VlImageProcessor, Lfm2VlProcessor, modeling_lfm2_vl.py and
modeling_siglip2.py; llama.cpp, conversion/lfm2.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images import siglip
from trinity.images.family import ImageFamily, Squares
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import pixel_limits
from trinity.images.tower_weights import PATCHES, channels_first

_BILINEAR = 2
_NORM = "mm.input_norm"


def _texts(squares: Squares) -> list[str]:
    texts = [
        f"<|img_row_{y + 1}_col_{x + 1}|>"
        for y in range(squares.rows)
        for x in range(squares.columns)
    ]
    if squares.whole:
        texts.append("<|img_thumbnail|>" if texts else "")
    return [f"<|image_start|>{texts[0]}", *texts[1:], "<|image_end|>"]


def _vision(vision: Values, config: Values) -> Values:
    """The object with the side of the image for which there are positions."""
    for key, expected in (("vision_feature_layer", -1), ("projector_hidden_act", "gelu")):
        if config.values.get(key, expected) != expected:
            raise UnsupportedError(
                f"{config.source}: {key} is {config.values[key]!r:.40}; trinity reads {expected!r}"
            )
    side = math.isqrt(vision.size("num_patches", "image_pixels"))
    size = side * vision.size("patch_size", "num_layers")
    return Values({**vision.values, "image_size": size}, vision.source)


def _settings(values: Values) -> ImageSettings:
    patch = values.size("encoder_patch_size", "num_layers")
    unit = patch * values.size("downsample_factor", "num_layers")
    tokens = [values.size(f"{which}_image_tokens", "hidden_size") for which in ("min", "max")]
    least, most = pixel_limits(tokens[0] * unit**2, tokens[1] * unit**2, patch)
    tiles = [values.size(f"{which}_tiles", "num_layers") for which in ("min", "max")]
    return ImageSettings(
        tile=values.size("tile_size", "hidden_size"), longest_edge=0,
        splits=values.flag("do_image_splitting", True) and tiles != [1, 1],
        resample=values.size("resample", "num_layers", smallest=0),
        unit=unit, least_pixels=least, most_pixels=most,
        least_tiles=tiles[0], most_tiles=tiles[1], patch=patch,
        most_excess=values.real("max_pixels_tolerance", "multiplier"),
        adds_whole=values.flag("use_thumbnail", True), torchvision=True,
    )  # fmt: skip


def _of_class(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors with patches in the order channel, y, x; the class has y, x, channel."""
    return {**tensors, PATCHES: channels_first(tensors[PATCHES])}


LFM2_VL = ImageFamily(
    name="lfm2",
    class_names=("Lfm2VlForConditionalGeneration",),
    mark="<image>",
    cut="fitted",
    texts=_texts,
    projector=("mm.1", "mm.2"),
    projector_norm=_NORM,
    prefixes=siglip.PREFIXES,
    ends={
        **siglip.ENDS,
        "mm.1": "multi_modal_projector.linear_1",
        "mm.2": "multi_modal_projector.linear_2",
    },
    optional={
        f"{_NORM}.{part}": f"multi_modal_projector.layer_norm.{part}" for part in ("weight", "bias")
    },
    layer=siglip.LAYER,
    layers=siglip.LAYERS,
    merge=lambda values: values.size("downsample_factor", "num_layers", 2),
    settings=_settings,
    usual_merge=2,
    usual_settings=ImageSettings(
        tile=512, longest_edge=0, splits=True, resample=_BILINEAR, unit=32,
        least_pixels=64 << 10, most_pixels=256 << 10, least_tiles=2, most_tiles=10, patch=16,
        most_excess=2.0, torchvision=True,
    ),
    vision=_vision,
    of_class=_of_class,
    positions="smoothed",
    architecture="lfm2",
    vision_defaults={
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_patches": 256, "patch_size": 16,
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
    },
    processor_defaults={
        **siglip.CHANNELS, "resample": _BILINEAR,
        "encoder_patch_size": 16, "downsample_factor": 2, "min_image_tokens": 64,
        "max_image_tokens": 256, "tile_size": 512, "min_tiles": 2, "max_tiles": 10,
        "max_pixels_tolerance": 2.0, "do_image_splitting": True, "use_thumbnail": True,
    },
)  # fmt: skip
