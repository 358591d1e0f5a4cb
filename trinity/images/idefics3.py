"""idefics3: Idefics 3, SmolVLM and SmolVLM 2, whose images become tiles and a small whole.

Source: transformers' Idefics3ImageProcessor (its Pillow backend), Idefics3Processor and
modeling_idefics3.py.
"""

from __future__ import annotations

from trinity.formats.huggingface.values import Values
from trinity.images import siglip
from trinity.images.family import ImageFamily, Squares
from trinity.images.settings import ImageSettings

_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"


def _texts(squares: Squares) -> list[str]:
    """The texts before, between and after the rows of squares."""
    texts, line = [], ""
    for y in range(squares.rows):
        for x in range(squares.columns):
            texts.append(f"{line}{_AROUND}<row_{y + 1}_col_{x + 1}>")
            line = ""
        line = "\n"
    last = "\n\n" if squares.rows else ""
    return [*texts, f"{last}{_AROUND}{_WHOLE}", _AROUND]


def _settings(values: Values) -> ImageSettings:
    return ImageSettings(
        tile=values.inner("max_image_size").size("longest_edge", "hidden_size"),
        longest_edge=values.inner("size").size("longest_edge", "hidden_size"),
        splits=values.flag("do_image_splitting", True),
        resample=values.size("resample", "num_layers", smallest=0),
    )


IDEFICS3 = ImageFamily(
    name="idefics3",
    class_names=("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
    mark="<image>",
    cut="tiles",
    texts=_texts,
    projector=("mm.model.fc",),
    prefixes=("model.vision_model.", "vision_model.", "model.", ""),
    ends={**siglip.ENDS, "mm.model.fc": "connector.modality_projection.proj"},
    layer=siglip.LAYER,
    layers=siglip.LAYERS,
    merge=lambda values: values.size("scale_factor", "num_layers", 2),
    settings=_settings,
    usual_merge=None,
    usual_settings=ImageSettings(tile=364, longest_edge=1456, splits=True, resample=1),
    vision_defaults={
        **siglip.DEFAULTS, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32,
    },
    processor_defaults={
        "size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364},
        **siglip.CHANNELS, "resample": 1, "do_image_splitting": True,
    },
)  # fmt: skip
