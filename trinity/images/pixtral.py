"""pixtral: the vision models of Mistral (Pixtral, Mistral Small 3.1 and 3.2, Ministral 3).

An image keeps its shape and becomes smaller if it is too large. Its rows are in the prompt line by
line, with a token after each line. Mistral 3 joins neighbouring patches before the projector.
Source: transformers' PixtralImageProcessor (its Pillow backend), PixtralProcessor,
modeling_pixtral.py and modeling_mistral3.py; llama.cpp, tools/mtmd/models/pixtral.cpp and
conversion/llava.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.values import Values
from trinity.formats.provider import Tensor
from trinity.images import siglip
from trinity.images.family import ImageFamily
from trinity.images.settings import ImageSettings

_BICUBIC = 3
_EPS = 1e-5  # of all norms; the class has no key for it
_THETA = 1e4
_MERGER, _NORM, _LAST_NORM = "mm.patch_merger.weight", "mm.input_norm.weight", "v.post_ln.weight"


def _check(values: Values) -> None:
    """Raise UnsupportedError for other features of patches and other norms."""
    if values.values.get("vision_feature_layer", -1) != -1:
        raise UnsupportedError(
            f"{values.source}: vision_feature_layer is "
            f"{values.values['vision_feature_layer']!r:.40}; trinity reads -1, the last layer"
        )
    eps = values.inner("text_config").real("rms_norm_eps", "rms_norm_eps", _EPS)
    activation = values.text("projector_hidden_act", "gelu")
    if eps != _EPS or activation != "gelu":
        raise UnsupportedError(
            f"{values.source}: the projector of images has rms_norm_eps {eps:g} and "
            f"{activation!r:.40}; trinity reads {_EPS:g} and 'gelu'"
        )


def _vision(vision: Values, config: Values) -> Values:
    """The object with the usual names. Raises UnsupportedError for other rotations."""
    rope = vision.inner("rope_parameters")
    theta = rope.real("rope_theta", "rope_theta", vision.real("rope_theta", "rope_theta", _THETA))
    if rope.text("rope_type", "axial") not in ("axial", "default") or theta != _THETA:
        raise UnsupportedError(
            f"{vision.source}: rope_theta of the vision tower is {theta:g}, its rope_type "
            f"{rope.text('rope_type', 'axial')!r:.40}; trinity reads {_THETA:g} and 'axial'"
        )
    _check(config)
    return Values({**vision.values, "layer_norm_eps": _EPS}, vision.source)


def _vision_of_12b(vision: Values, config: Values) -> Values:
    """As ``_vision``; the class has other defaults."""
    for key, usual, expected in (
        ("vision_feature_layer", -2, -1), ("vision_feature_select_strategy", "default", "full"),
    ):  # fmt: skip
        if config.values.get(key, usual) != expected:
            raise UnsupportedError(
                f"{config.source}: {key} is {config.values.get(key, usual)!r:.40}; trinity reads "
                f"{expected!r} with the tower of Pixtral"
            )
    return _vision(vision, config)


def _settings(values: Values) -> ImageSettings:
    return ImageSettings(
        tile=0, longest_edge=values.inner("size").size("longest_edge", "hidden_size"),
        splits=False, resample=values.size("resample", "num_layers", smallest=0),
    )  # fmt: skip


def _of_class(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors with the columns of the merger in the order patch, channel.

    Files have channel, patch.
    """
    stored = tensors.get(_MERGER)
    if stored is None:
        return tensors
    shape = stored.shape
    if len(shape) != 2 or shape[1] % shape[0]:
        raise ConfigError(f"{stored.where} has shape {shape}; expected (n, n * patches)")
    values = stored.dequantize().reshape(shape[0], shape[0], -1).swapaxes(1, 2)
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return {**tensors, _MERGER: replace(stored, type="F32", data=data)}


def _of_gguf(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors as ``_of_class`` does; the last norm has a name of its own."""
    named = {_LAST_NORM if name == _NORM else name: tensor for name, tensor in tensors.items()}
    return _of_class(named)


PIXTRAL = ImageFamily(
    name="pixtral",
    class_names=("Mistral3ForConditionalGeneration",),
    mark="[IMG]",
    cut="shrunk",
    texts=lambda squares: ["", "[IMG_END]"],
    line_break="[IMG_BREAK]",
    projector=("mm.1", "mm.2"),
    merger="mm.patch_merger",
    prefixes=("model.", ""),
    ends={
        "v.patch_embd": "vision_tower.patch_conv",
        "v.pre_ln": "vision_tower.ln_pre",
        "mm.1": "multi_modal_projector.linear_1",
        "mm.2": "multi_modal_projector.linear_2",
    },
    optional={
        _LAST_NORM: "multi_modal_projector.norm.weight",
        _MERGER: "multi_modal_projector.patch_merger.merging_layer.weight",
    },
    layer={
        "ln1": "attention_norm",
        "attn_q": "attention.q_proj",
        "attn_k": "attention.k_proj",
        "attn_v": "attention.v_proj",
        "attn_out": "attention.o_proj",
        "ln2": "ffn_norm",
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
    },
    layers="vision_tower.transformer.layers.{}.",
    merge=lambda values: values.size("spatial_merge_size", "num_layers", 2),
    merge_key="spatial_merge_size",
    settings=_settings,
    usual_settings=ImageSettings(tile=0, longest_edge=1024, splits=False, resample=_BICUBIC),
    vision=_vision,
    of_class=_of_class,
    of_gguf=_of_gguf,
    permuted=True,
    positions="none",
    norms=("rms",),
    activations=("silu", "gelu", "gelu_erf"),
    gated=True,
    pre_norm=True,
    rotates=True,
    rotates_odd=True,
    vision_defaults={
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu",
    },
    processor_defaults={
        "size": {"longest_edge": 1024}, "resample": _BICUBIC, **siglip.CLIP_CHANNELS,
    },
)  # fmt: skip
# Pixtral 12B, which joins no patches.
PIXTRAL_12B = replace(
    PIXTRAL,
    class_names=("LlavaForConditionalGeneration",),
    tower="pixtral",
    merge=lambda values: 1,
    vision=_vision_of_12b,
)
