"""Finds the vision tower that belongs to a language model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from trinity.errors import ConfigError, TrinityError
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.provider import WeightProvider
from trinity.images.directory import read_tower, tower_tensors
from trinity.images.encoder import ImageEncoder
from trinity.images.family import ImageFamily
from trinity.images.gemma3 import GEMMA3
from trinity.images.gemma4 import GEMMA4, GEMMA4_12B
from trinity.images.idefics3 import IDEFICS3
from trinity.images.internvl import INTERNVL, INTERNVL_CHAT
from trinity.images.lfm2_vl import LFM2_VL
from trinity.images.llava import LLAVA, LLAVA_NEXT
from trinity.images.minicpmv import MINICPMV, MINICPMV_25
from trinity.images.mmproj import MmprojFile
from trinity.images.pixtral import PIXTRAL, PIXTRAL_12B
from trinity.images.qwen_vl import QWEN2VL, QWEN3VL, QWEN25VL
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import TowerConfig
from trinity.providers.huggingface import HuggingFaceProvider
from trinity.runtime.interface import Engine

FAMILIES: tuple[ImageFamily, ...] = (
    IDEFICS3, GEMMA3, GEMMA4, GEMMA4_12B, QWEN3VL, QWEN25VL, QWEN2VL, PIXTRAL_12B, PIXTRAL,
    INTERNVL_CHAT, INTERNVL, LLAVA, LLAVA_NEXT, LFM2_VL, MINICPMV_25, MINICPMV,
)  # fmt: skip


def open_encoder(
    provider: WeightProvider, engine: Engine, mmproj: str | os.PathLike[str] | None,
    own: str | None, notice: Callable[[str], None], made: type[ImageEncoder] = ImageEncoder,
) -> ImageEncoder | None:  # fmt: skip
    """Return a model's encoder of images, of class ``made``: that of the file ``mmproj``, of the
    model's ``own`` such file, or of its directory.

    Its tensors are bound when the first image comes. None if there is no encoder; if the model's
    own is not supported, ``notice`` receives the reason.
    Raises: for ``mmproj``, as ``MmprojFile``.
    """
    if mmproj is not None:
        return _of_file(mmproj, engine, made)
    if own is not None:
        try:
            return _of_file(own, engine, made)
        except TrinityError as error:
            notice(f"note: images are not read: {error}")
            return None
    if not isinstance(provider, HuggingFaceProvider):
        return None
    class_name, values = class_name_of(provider.described.values), provider.described.values.values
    vision, version = values.get("vision_config"), str(values.get("version"))
    towers = "", vision.get("model_type") if isinstance(vision, dict) else ""
    fitting = (
        family
        for family in FAMILIES
        if class_name in family.class_names
        and family.tower in towers
        and (not family.versions or version in family.versions)
    )
    family = next(fitting, None)
    if family is None:
        if provider.left_out:
            notice(f"note: {provider.left_out}")
        return None
    try:
        config, settings = read_tower(family, provider.files, engine.config.hidden_size)
        _check_text(family, config, engine, provider.path)
        tensors = tower_tensors(family, config, provider.checkpoint)
        both_ways = family.both_ways(engine.config, provider.described.values)
        settings = _within_a_step(settings, engine, both_ways)
        return made(family, config, settings, tensors, engine, both_ways=both_ways)
    except TrinityError as error:
        notice(f"note: images are not read: {error}")
        return None


def _check_text(family: ImageFamily, config: TowerConfig, engine: Engine, source: str) -> None:
    """Raise ConfigError if the text model does not read images as the tower provides them."""
    text = engine.config
    if family.architecture not in ("", text.architecture):
        raise ConfigError(
            f"{source}: the projector {family.name} does not fit the text model "
            f"({text.architecture}), but {family.architecture}: use the mmproj file of this model"
        )
    if family.axes != bool(text.rope_sections):
        has = "has no" if family.axes else "has"
        raise ConfigError(
            f"{source}: the projector {family.name} does not fit the text model "
            f"({text.architecture}), which {has} rope.dimension_sections for positions of images "
            "in height and width: use the mmproj file of this model, or convert the model again"
        )
    if len(config.deepstack) != text.deepstack_layers:
        raise ConfigError(
            f"{source}: its projector has rows for {len(config.deepstack)} layers of the text "
            f"model (deepstack), but the text model takes them in {text.deepstack_layers}: use the "
            "mmproj file of this model"
        )


def _within_a_step(settings: ImageSettings, engine: Engine, both_ways: bool) -> ImageSettings:
    """Return settings with which a step takes all rows of an image if these see each other."""
    if settings.tile or not both_ways:
        return settings
    most = min(settings.most_pixels, engine.prefill_chunk * settings.unit**2)
    return replace(settings, most_pixels=most)


def _of_file(
    path: str | os.PathLike[str], engine: Engine, made: type[ImageEncoder]
) -> ImageEncoder:
    """The encoder of an mmproj file, which is closed with it."""
    file = MmprojFile(path, {family.name: family for family in FAMILIES})
    try:
        config, settings = file.tower(engine.config.hidden_size)
        _check_text(file.family, config, engine, file.path)
        tensors = file.tensors(config)
        both_ways = file.family.both_ways(engine.config, None)
        settings = _within_a_step(settings, engine, both_ways)
        return made(
            file.family, config, settings, tensors, engine, both_ways=both_ways,
            release=file.close,
        )  # fmt: skip
    except BaseException:
        file.close()
        raise
