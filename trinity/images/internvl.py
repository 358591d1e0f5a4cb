"""internvl: InternVL 2.5, 3 and 3.5, whose images become a grid of tiles and a small whole.

The larger tower (6B) has RMS norms, and norms of queries and keys. Directories are those of
transformers' class, or those of OpenGVLab's InternVLChatModel, whose config.json says how images
are cut.
Source: transformers' GotOcr2ImageProcessor (its Pillow backend), InternVLProcessor and
modeling_internvl.py; OpenGVLab's modeling_internvl_chat.py, modeling_intern_vit.py and model cards;
llama.cpp, conversion/internvl.py. According to its code, llama.cpp gives each patch the position of
the patch before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.values import Values
from trinity.images import siglip
from trinity.images.family import ImageFamily, Squares
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import Norm

_BICUBIC = 3
_NORMS: dict[str, Norm] = {"layer_norm": "layer", "rms_norm": "rms"}


def _texts(squares: Squares) -> list[str]:
    return ["<img>", *[""] * (squares.rows * squares.columns), "</img>"]


def _vision(vision: Values, config: Values) -> Values:
    """The object with one number for the sides of images and patches."""
    _expect(
        config, vision_feature_layer=-1, vision_feature_select_strategy="default",
        projector_hidden_act="gelu",
    )  # fmt: skip
    _expect(vision, use_mean_pooling=True, use_absolute_position_embeddings=True)
    sides = {key: _side(vision, key) for key in ("image_size", "patch_size")}
    return Values({**vision.values, **sides}, vision.source)


def _expect(values: Values, **expected: object) -> None:
    """Raise UnsupportedError for a value other than the expected one, which is the default."""
    for key, value in expected.items():
        if values.values.get(key, value) != value:
            raise UnsupportedError(
                f"{values.source}: {key} is {values.values[key]!r:.40}; trinity reads {value!r}"
            )


def _side(vision: Values, key: str) -> object:
    found = vision.values.get(key)
    if isinstance(found, list) and len(found) == 2 and found[0] == found[1]:
        return found[0]
    return found


def _more(vision: Values) -> dict[str, Any]:
    kind = vision.text("norm_type", "layer_norm")
    if kind not in _NORMS:
        raise UnsupportedError(
            f"{vision.source}: norm_type is {kind!r:.40}; trinity reads {', '.join(_NORMS)}"
        )
    return {
        "norm": _NORMS[kind],
        "class_token": True,
        "row_norms": vision.flag("use_qk_norm"),
        "scales": True,
    }


def _merge(config: Values) -> int:
    ratio = config.real("downsample_ratio", "multiplier", 0.5)
    return max(int(1 / ratio), 1)


def _settings(values: Values) -> ImageSettings:
    size = values.inner("size")
    tile = size.size("height", "hidden_size")
    if size.size("width", "hidden_size") != tile:
        raise UnsupportedError(f"{size.source}: tiles are not square, which is not supported")
    # transformers' processor of InternVL cuts images whatever crop_to_patches says.
    return ImageSettings(
        tile=tile, longest_edge=tile, splits=True,
        resample=values.size("resample", "num_layers", smallest=0),
        least_tiles=values.size("min_patches", "num_layers"),
        most_tiles=values.size("max_patches", "num_layers"),
    )  # fmt: skip


INTERNVL = ImageFamily(
    name="internvl",
    class_names=("InternVLForConditionalGeneration",),
    mark="<IMG_CONTEXT>",
    joint="\n",
    cut="grid",
    texts=_texts,
    projector=("mm.model.mlp.1", "mm.model.mlp.3"),
    projector_norm="mm.model.mlp.0",
    prefixes=("model.vision_tower.", "vision_tower.", "model.", ""),
    ends={
        "v.patch_embd": "embeddings.patch_embeddings.projection",
        "v.position_embd": "embeddings.position_embeddings",
        "mm.model.mlp.0": "multi_modal_projector.layer_norm",
        "mm.model.mlp.1": "multi_modal_projector.linear_1",
        "mm.model.mlp.3": "multi_modal_projector.linear_2",
    },
    layer={
        "ln1": "layernorm_before",
        "attn_q": "attention.q_proj",
        "attn_k": "attention.k_proj",
        "attn_v": "attention.v_proj",
        "attn_q_norm": "attention.q_norm",
        "attn_k_norm": "attention.k_norm",
        "attn_out": "attention.projection_layer",
        "ls1": "lambda_1",
        "ln2": "layernorm_after",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
        "ls2": "lambda_2",
    },
    layers="encoder.layer.{}.",
    optional={"v.class_embd": "embeddings.cls_token"},
    merge=_merge,
    settings=_settings,
    usual_merge=2,
    usual_settings=ImageSettings(
        tile=448, longest_edge=448, splits=True, resample=_BICUBIC, most_tiles=12
    ),
    vision=_vision,
    more=_more,
    norms=("layer", "rms"),
    activations=("gelu_erf",),
    last_norm=False,
    vision_defaults={
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 448, "patch_size": 14, "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
    },
    processor_defaults={
        "size": {"height": 384, "width": 384}, "resample": _BICUBIC, "min_patches": 1,
        "max_patches": 12, **siglip.CLIP_CHANNELS,
    },
)  # fmt: skip


def _vision_of_chat(vision: Values, config: Values) -> Values:
    """Return the tower's config.json under the names that transformers uses."""
    config = Values({"ps_version": "v1", **config.values}, config.source)
    _expect(config, select_layer=-1, ps_version="v2", pad2square=False)
    return Values({**vision.values, "use_qk_norm": vision.flag("qk_normalization")}, vision.source)


def _processor_of_chat(processor: Values, config: Values) -> Values:
    """Return the settings of image processing. They are in config.json; the processor's own file
    describes single squares only.
    """
    usual = config.inner("vision_config").size("image_size", "hidden_size", 224)
    tile = config.size("force_image_size", "hidden_size", usual)
    limits: dict[str, object] = {"min_patches": 1, "max_patches": 1}
    if config.flag("dynamic_image_size"):
        thumbnail = {"use_thumbnail": False, **config.values}
        _expect(Values(thumbnail, config.source), use_thumbnail=True)
        limits = {
            "min_patches": config.size("min_dynamic_patch", "num_layers", 1),
            "max_patches": config.size("max_dynamic_patch", "num_layers", 6),
        }
    size = {"size": {"height": tile, "width": tile}}
    return Values({**processor.values, **size, **limits}, processor.source)


INTERNVL_CHAT = replace(
    INTERNVL,
    class_names=("InternVLChatModel",),
    prefixes=("vision_model.", ""),
    ends={
        "v.patch_embd": "embeddings.patch_embedding",
        "v.position_embd": "embeddings.position_embedding",
        **{f"mm.model.mlp.{place}": f"mlp1.{place}" for place in (0, 1, 3)},
    },
    layer={
        "ln1": "norm1",
        "attn_qkv": "attn.qkv",
        "attn_q_norm": "attn.q_norm",
        "attn_k_norm": "attn.k_norm",
        "attn_out": "attn.proj",
        "ls1": "ls1",
        "ln2": "norm2",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
        "ls2": "ls2",
    },
    layers="encoder.layers.{}.",
    optional={"v.class_embd": "embeddings.class_embedding"},
    vision=_vision_of_chat,
    processor=_processor_of_chat,
    vision_defaults={
        "hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 48,
        "num_attention_heads": 25, "image_size": 224, "patch_size": 14, "hidden_act": "gelu",
        "layer_norm_eps": 1e-6, "norm_type": "rms_norm", "qk_normalization": True,
    },
    processor_defaults={
        "resample": _BICUBIC, "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
)  # fmt: skip
