"""resampler: MiniCPM-V 2.5, 2.6, 4 and 4.5, and images of MiniCPM-o 2.6 and 4.5.

A large image becomes a small whole and up to 9 slices, and each of them a number of rows that does
not depend on its size.
Source: OpenBMB's image_processing_minicpmv.py, processing_minicpmv.py, modeling_minicpmv.py and
resampler.py; transformers' Idefics2VisionModel; llama.cpp, tools/mtmd/models/minicpmv.cpp and
tools/mtmd/legacy-models/minicpmv-convert-image-encoder-to-gguf.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images import siglip
from trinity.images.family import ImageFamily, Squares
from trinity.images.settings import ImageSettings

_BICUBIC = 3
_PROJECTION, _JOINED = "resampler.proj.weight", "resampler.attn.in_proj_"
_VERSION = "clip.minicpmv_version"
# Values of clip.minicpmv_version: V 2.6, o 2.6, V 4, V 4.5 and o 4.5 (also V 2.5: 2 or none).
_NEWER = (3, 4, 5, 6, 100045)


def _texts(squares: Squares) -> list[str]:
    """Each slice is between <slice> and </slice>."""
    return _with_slices(
        squares, "</image><slice>", "</slice><slice>", "</slice>\n<slice>", "</slice>"
    )


def _texts_of_25(squares: Squares) -> list[str]:
    """All slices together are between <slice> and </slice>."""
    return _with_slices(
        squares, "</image><slice><image>", "</image><image>", "</image>\n<image>",
        "</image></slice>",
    )  # fmt: skip


def _with_slices(squares: Squares, first: str, next_one: str, line: str, last: str) -> list[str]:
    """Return the prompt's text around the whole image and around each slice.

    ``line`` separates two rows of slices, ``next_one`` two slices of a row.
    """
    if not squares.rows:
        return ["<image>", "</image>"]
    between = [[next_one] * (squares.columns - 1)] * squares.rows
    texts = [text for row in between for text in (line, *row)]
    return ["<image>", first, *texts[1:], last]


def _vision(vision: Values, config: Values) -> Values:
    """Return the tower's config.json with two numbers from the model's: used layers and queries."""
    layers = vision.size("num_hidden_layers", "num_layers")
    return Values(
        {
            **vision.values,
            "num_hidden_layers": layers - config.flag("drop_vision_last_layer"),
            "query_num": config.size("query_num", "hidden_size", 64),
        },
        vision.source,
    )


def _processor(processor: Values, config: Values) -> Values:
    """Return preprocessor_config.json under the names that transformers uses."""
    if not processor.flag("slice_mode", True):
        raise UnsupportedError(f"{processor.source}: slice_mode is false, which is not supported")
    named = {
        f"image_{key}": processor.values.get(f"norm_{key}", [0.5, 0.5, 0.5])
        for key in ("mean", "std")
    }
    return Values({**named, **processor.values}, processor.source)


def _settings(values: Values) -> ImageSettings:
    tile = values.size("scale_resolution", "hidden_size")
    return ImageSettings(
        tile=tile, longest_edge=tile, splits=True, resample=_BICUBIC,
        unit=values.size("patch_size", "num_layers"),
        most_tiles=values.size("max_slice_nums", "num_layers"),
        numbers=values.flag("use_image_id"),
    )  # fmt: skip


def _of_class(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors as GGUF's files have them.

    The class has one tensor for queries, keys and values, and its last product is (inputs,
    outputs).
    """
    made = {name: tensor for name, tensor in tensors.items() if not name.startswith(_JOINED)}
    for part in ("weight", "bias"):
        joined = tensors.get(_JOINED + part)
        if joined is None:
            continue
        rows = joined.shape[0] if joined.shape else 1
        if rows % 3:
            raise ConfigError(f"{joined.where} has shape {joined.shape}; expected 3 equal parts")
        for letter, data in zip("qkv", np.split(joined.data.reshape(-1), 3), strict=True):
            shape = rows // 3, *joined.shape[1:]
            made[f"resampler.attn.{letter}.{part}"] = replace(joined, shape=shape, data=data)
    stored = tensors[_PROJECTION]
    turned = np.ascontiguousarray(stored.dequantize().T)
    data = turned.reshape(-1).view(np.uint8)
    made[_PROJECTION] = replace(stored, shape=turned.shape, type="F32", data=data)
    return made


def _variant(
    family: ImageFamily, names: Collection[str], metadata: Mapping[str, object], source: str
) -> ImageFamily:
    """Return the family for the MiniCPM-V version that a GGUF file names."""
    version = metadata.get(_VERSION, 2)
    if isinstance(version, int) and version in (0, 2):
        return MINICPMV_25
    if not isinstance(version, int) or version not in _NEWER:
        known = ", ".join(map(str, (2, *_NEWER)))
        raise UnsupportedError(f"{source}: {_VERSION} is {version!r:.40}; trinity reads {known}")
    return family


def _more(vision: Values) -> dict[str, Any]:
    return {"queries": vision.size("query_num", "hidden_size")}


MINICPMV = ImageFamily(
    name="resampler",
    class_names=("MiniCPMV", "MiniCPMO"),
    versions=("2.6", "4.0", "4.5"),
    mark="(<image>./</image>)",
    joint="\n",
    number="<image_id>{}</image_id>",
    cut="sliced",
    texts=_texts,
    projector=("resampler.proj",),
    prefixes=("vpm.", ""),
    ends={
        **siglip.ENDS,
        **{
            f"resampler.{name}": f"resampler.{name}"
            for name in ("ln_q", "ln_kv", "ln_post", "proj")
        },
        "resampler.kv": "resampler.kv_proj",
        "resampler.attn.out": "resampler.attn.out_proj",
    },
    optional={
        name: name
        for name in ("resampler.query", f"{_JOINED}weight", f"{_JOINED}bias")
    },
    layer=siglip.LAYER,
    layers=siglip.LAYERS,
    settings=_settings,
    usual_settings=ImageSettings(
        tile=448, longest_edge=448, splits=True, resample=_BICUBIC, unit=14, most_tiles=9,
        numbers=True,
    ),
    vision=_vision,
    processor=_processor,
    more=_more,
    of_class=_of_class,
    variant=_variant,
    positions="nearest",
    activations=("gelu",),
    vision_defaults=siglip.DEFAULTS,
    processor_defaults={"scale_resolution": 448, "patch_size": 14, "max_slice_nums": 9},
)  # fmt: skip
MINICPMV_25 = replace(
    MINICPMV,
    class_names=("MiniCPMV",),
    versions=("None", "2.5"),
    texts=_texts_of_25,
    number="",
    usual_settings=replace(MINICPMV.usual_settings, numbers=False),
)
