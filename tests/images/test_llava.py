"""Vision models of LLaVA: sizes of images, the middle of an image, lines of rows, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.images import small_vision_models as small
from tests.images.changed_directories import changed_copy, check_reads_only_text
from tests.images.mmproj_files import write_mmproj
from tests.images.test_vision_models import asked
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.images import cutting
from trinity.images.cutting import anyres, best_size
from trinity.images.settings import ImageSettings

IMAGES = "preprocessor_config.json"
PINPOINTS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))  # heights, widths


@pytest.mark.parametrize(
    ("size", "expected"),
    [  # transformers' select_best_resolution; width and height here
        ((1, 1), (672, 336)), ((3, 5000), (672, 336)), ((17, 23), (672, 336)),
        ((896, 896), (672, 672)), ((4000, 3000), (672, 672)), ((1920, 1080), (672, 672)),
        ((1000, 7), (1008, 336)), ((300, 1000), (336, 1008)),
    ],
)  # fmt: skip
def test_sizes_are_those_of_transformers(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert best_size(*size, PINPOINTS) == expected


def test_the_middle_of_a_very_long_image_is_cut_out_before_it_is_resized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = small.image(4, 70).resize((30, 700))  # without noise, which the order of axes changes
    settings = ImageSettings(tile=32, longest_edge=32, splits=False, resample=3, shortest_edge=40)
    (whole,) = anyres(image, settings).images
    monkeypatch.setattr(cutting, "_MOST_RESIZED", 100)
    (cut,) = anyres(image, settings).images
    assert cut.size == whole.size == (32, 32)
    difference = np.asarray(cut, np.int16) - np.asarray(whole, np.int16)
    assert np.abs(difference).max() <= 1


def test_tiles_have_black_around_the_image() -> None:
    image = small.image(60, 10)
    settings = ImageSettings(tile=32, longest_edge=32, splits=True, resample=3,
                             pinpoints=((32, 64), (64, 64)))  # fmt: skip
    found = anyres(image, settings)
    assert (found.rows, found.columns, len(found.images)) == (1, 2, 3)
    first = np.asarray(found.images[0])
    assert not first[:10].any()
    assert not first[21:].any()
    assert first[10:21].any()


@pytest.mark.parametrize(("name", "file", "part", "key", "value", "message"), [
    ("llava", "config.json", "", "vision_feature_layer", [1, 4], r"layer is \[1, 4\]"),
    ("llava", "config.json", "", "vision_feature_layer", 0, "layer is 0; trinity reads layers"),
    ("llava", "config.json", "", "vision_feature_layer", -4, "layer is -4; trinity reads"),
    ("llava", "config.json", "", "vision_feature_select_strategy", "full", "is 'full'"),
    ("llava", "config.json", "", "projector_hidden_act", "relu", "is 'relu'"),
    ("llava", "config.json", "vision_config", "model_type", "dinov2", "is 'dinov2'"),
    ("llava", "config.json", "vision_config", "image_size", 40, "squares of 40 pixels"),
    ("llava", IMAGES, "", "do_center_crop", False, "do_center_crop is false"),
    ("llava", IMAGES, "", "do_pad", True, "do_pad is true"),
    ("llava", IMAGES, "size", "shortest_edge", 20, "a shorter side of 20"),
    ("llava_siglip", IMAGES, "size", "height", 20, "not square"),
    ("llava_next", IMAGES, "", "size", {"shortest_edge": 40}, "differ"),
    ("llava_next", IMAGES, "", "image_grid_pinpoints", [[40, 32]],
     "must be multiples of 32"),
    ("llava_next", IMAGES, "", "image_grid_pinpoints", [[32]], "must be a list"),
    ("llava_next", IMAGES, "", "image_grid_pinpoints", [], "must be a list"),
    ("llava_next", IMAGES, "", "image_grid_pinpoints", [[32, -32]], "multiples"),
    ("llava_next", IMAGES, "", "image_grid_pinpoints", [[1 << 20, 1 << 20]],
     "at most 16777216 pixels"),
])  # fmt: skip
def test_a_tower_that_is_not_supported_leaves_the_text(
    name: str, file: str, part: str, key: str, value: object, message: str,
    directories: dict[str, Path], tmp_path: Path,
) -> None:  # fmt: skip
    path = changed_copy(directories[name], tmp_path / "model", {key: value}, file, part)
    check_reads_only_text(path, message)


@pytest.mark.parametrize("layer", [2, [-2]])
def test_the_layer_of_the_projector_may_be_counted_from_either_end(
    layer: object, directories: dict[str, Path], models: dict[str, trinity.Model], tmp_path: Path
) -> None:
    source, to = directories["llava"], tmp_path / "model"
    path = changed_copy(source, to, {"vision_feature_layer": layer})
    with trinity.load(path) as model:
        assert model.image_encoder is not None
        found = model.image_encoder.encode(small.image(40, 30)).rows
    usual = models["llava"].image_encoder
    assert usual is not None
    np.testing.assert_array_equal(found, usual.encode(small.image(40, 30)).rows)


@pytest.mark.parametrize(("key", "value", "kind", "message"), [
    ("image_grid_pinpoints", [32], ConfigError, "must be pairs"),
    ("image_grid_pinpoints", [32, 33], ConfigError, "must be multiples of 32"),
    ("feature_layer", [1, 0], UnsupportedError, "trinity reads layers from 1 to 2"),
    ("feature_layer", [3], UnsupportedError, "trinity reads layers from 1 to 2"),
    ("feature_layer", [1, 2], ConfigError, "requires"),
    ("feature_layer", 17 * [2], ConfigError, "at most 16 are read"),
    ("v.image_newline", [0.0] * 3, ConfigError, "requires 48 values"),
    ("v.pre_ln.weight", None, ConfigError, "no tensor 'v.pre_ln.weight'"),
])  # fmt: skip
def test_a_damaged_projector_is_refused(
    key: str, value: Any, kind: type[TrinityError], message: str, directories: dict[str, Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    made, path = tmp_path / "changed.gguf", tmp_path / "mmproj.gguf"
    with GGUFProvider(write_mmproj("llava_next", path)) as sound, GGUFWriter(made) as writer:
        for known, stored in sound.metadata.items():
            if known == f"clip.vision.{key}":
                writer.add(known, np.array(value, np.int32))
            elif not known.startswith("GGUF"):
                writer.add(known, np.uint32(stored) if type(stored) is int else stored)
        for name in sound.tensor_names():
            named = {"model.image_newline": "v.image_newline"}.get(name, name)
            tensor = sound.tensor(name).dequantize()
            if named == key:
                tensor = None if value is None else np.array(value, np.float32)
            if tensor is not None:
                writer.add_tensor(named, tensor.shape, "F32", np.ascontiguousarray(tensor))
    with (
        pytest.raises(kind, match=message),
        trinity.load(directories["llava_next"], mmproj=made) as m,
    ):
        m.chat(asked(small.image(20, 20)), max_tokens=1)


def test_rows_are_counted_before_they_are_computed(models: dict[str, trinity.Model]) -> None:
    images = models["llava_next"].image_encoder
    assert images is not None
    for size in small.SIZES:
        read = images._read(small.image(*size), "the image")
        counted = images._rows_of(read)
        assert counted == len(images.encode(small.image(*size)).rows)
