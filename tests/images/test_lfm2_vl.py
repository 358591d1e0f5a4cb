"""LFM2-VL: sizes and tiles of images, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import trinity
from tests.images import small_vision_models as small
from tests.images.changed_directories import PROCESSOR, changed_copy, check_reads_only_text
from tests.images.test_vision_models import asked, plain
from trinity.images.cutting import fitted
from trinity.images.family import Squares
from trinity.images.lfm2_vl import LFM2_VL


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("size", "whole", "grid"),
    [  # transformers' Lfm2VlImageProcessor with its defaults; it fails for the last
        ((1, 1), (256, 256), (0, 0)), ((3, 5000), (32, 4992), (0, 0)),
        ((17, 23), (224, 320), (0, 0)), ((896, 896), (512, 512), (2, 2)),
        ((4000, 3000), (576, 416), (2, 3)), ((700, 720), (480, 512), (0, 0)),
        ((1920, 1080), (672, 384), (2, 4)), ((300, 7), (1696, 64), (0, 0)),
        ((2000, 1999), (512, 480), (3, 3)), ((15, 40000), (32, 16384), (10, 1)),
    ],
)  # fmt: skip
def test_sizes_are_those_of_transformers(
    size: tuple[int, int], whole: tuple[int, int], grid: tuple[int, int]
) -> None:
    cut = fitted(small.image(*size), LFM2_VL.usual_settings)
    assert cut.images[-1].size == whole
    assert (cut.rows, cut.columns) == grid
    assert [image.size for image in cut.images[:-1]] == [(512, 512)] * (grid[0] * grid[1])


def test_an_image_has_at_least_one_unit_whatever_the_limit() -> None:
    settings = replace(LFM2_VL.usual_settings, most_pixels=1, splits=False)
    assert fitted(small.image(40, 30), settings).images[-1].size == (32, 32)


def test_tiles_have_their_place_before_them(models: dict[str, trinity.Model]) -> None:
    ids = models["lfm2vl"].apply_chat_template(asked(small.image(100, 60), text=""))
    special = small.SPECIAL["lfm2vl"]
    first = ids.images[0].first
    tokens = [
        special[token - 256] for token in plain("lfm2vl", ids)[first - 2 : -10] if token > 255
    ]
    rows = 4 * ["<image>"]
    tile = "<|img_row_{}_col_{}|>".format
    grid = [(y, x) for y in (1, 2) for x in (1, 2, 3)]
    assert tokens[0] == "<|image_start|>"
    assert tokens[1 : 1 + 5 * len(grid)] == [part for at in grid for part in (tile(*at), *rows)]
    assert tokens[1 + 5 * len(grid)] == "<|img_thumbnail|>"


@pytest.mark.parametrize(("rows", "columns", "whole", "count"), [
    (0, 0, True, 1), (1, 2, True, 3), (2, 1, False, 2),
])  # fmt: skip
def test_texts_fit_the_squares(rows: int, columns: int, whole: bool, count: int) -> None:
    texts = LFM2_VL.texts(Squares([], rows, columns, (9, 9), whole))
    assert len(texts) == count + 1
    assert ("<|img_thumbnail|>" in "".join(texts)) == (whole and rows > 0)


@pytest.mark.parametrize(("key", "value"), [
    ("use_thumbnail", False), ("do_image_splitting", False), ("max_tiles", 2),
])  # fmt: skip
def test_settings_of_tiles_count(
    key: str, value: object, directories: dict[str, Path], tmp_path: Path
) -> None:
    path = changed_copy(directories["lfm2vl"], tmp_path / "model", {key: value}, PROCESSOR)
    with trinity.load(path) as model:
        ids = model.apply_chat_template(asked(small.image(100, 60)))
        assert model.generate(ids, max_tokens=1).token_ids
    parts = [len(image.rows) for image in ids.images]
    assert (
        parts == {"use_thumbnail": 6 * [4], "do_image_splitting": [8], "max_tiles": [4, 4, 8]}[key]
    )


@pytest.mark.parametrize(("file", "key", "value", "message"), [
    ("config.json", "vision_feature_layer", -2, "vision_feature_layer is -2"),
    ("config.json", "projector_hidden_act", "relu", "projector_hidden_act is 'relu'"),
    ("config.json", "downsample_factor", 4, "sides of images are multiples of 16"),
    ("preprocessor_config.json", "encoder_patch_size", 16, "sides of images are multiples of 32"),
    ("preprocessor_config.json", "tile_size", 40, "blocks of 16 pixels, .* tiles of 40"),
    ("preprocessor_config.json", "max_tiles", 60_000, "max_tiles is 60000"),
    ("preprocessor_config.json", "tile_size", 2048, "more than 16384 patches"),
    ("preprocessor_config.json", "max_image_tokens", 4096, "more than 16384 patches"),
    ("preprocessor_config.json", "min_tiles", 7, "becomes 7 to 6 tiles"),
])  # fmt: skip
def test_a_tower_that_is_not_supported_leaves_the_text(
    file: str, key: str, value: object, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    path = changed_copy(directories["lfm2vl"], tmp_path / "model", {key: value}, file)
    check_reads_only_text(path, message)
