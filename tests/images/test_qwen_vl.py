"""Vision models of Qwen's: sizes of images, positions in three axes, rows for the first layers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.images import small_vision_models as small
from tests.images.changed_directories import PROCESSOR, changed_copy, check_reads_only_text
from tests.images.mmproj_files import write_mmproj
from tests.images.test_vision_models import asked
from trinity.errors import ConfigError, InputError
from trinity.images.cutting import resized
from trinity.images.patches import resized_table, windows_of
from trinity.images.settings import ImageSettings
from trinity.images.tower_config import pixel_limits
from trinity.runtime.image_positions import axes_of_pairs, places_of_images, positions_of_text
from trinity.runtime.image_rows import ImageRows

SETTINGS = ImageSettings(
    tile=0, longest_edge=0, splits=False, resample=3, unit=32, least_pixels=65536,
    most_pixels=4194304,
)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "expected"),
    [  # transformers' smart_resize(height, width, 32, 65536, 4194304)
        ((1, 1), (256, 256)), ((17, 23), (224, 320)), ((896, 896), (896, 896)),
        ((4000, 3000), (2336, 1760)), ((1000, 7), (3072, 32)), ((80, 80), (256, 256)),
        ((48, 1200), (64, 1216)), ((272, 272), (256, 256)), ((304, 304), (320, 320)),
    ],
)  # fmt: skip
def test_sizes_are_those_of_transformers(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert resized(*size, SETTINGS) == expected


def test_very_long_images_are_refused(models: dict[str, trinity.Model]) -> None:
    with pytest.raises(InputError, match=r"3 x 5000 pixels.* 200 times"):
        models["qwen3vl"].chat(asked(small.image(3, 5000)), max_tokens=1)


def test_positions_of_images_and_of_the_text_around_them() -> None:
    # Text 0 1, an image of 2 x 3 rows, text, an image of 3 x 1 rows, text.
    images = (
        ImageRows(2, np.zeros((6, 4), np.float32), columns=3),
        ImageRows(10, np.zeros((3, 4), np.float32), columns=1),
    )
    whole = np.repeat(positions_of_text(images, 0, 16)[:, None], 3, axis=1)
    for low, high, places in places_of_images(images, 0, 16):
        whole[low:high] = places
    expected = [[0] * 3, [1] * 3]
    expected += [[2, 2 + y, 2 + x] for y in range(2) for x in range(3)]
    expected += [[5] * 3, [6] * 3, [7, 7, 7], [7, 8, 7], [7, 9, 7]]
    expected += [[10 + i] * 3 for i in range(3)]
    assert whole.tolist() == expected
    for start in range(16):
        for count in range(1, 17 - start):
            part = np.repeat(positions_of_text(images, start, count)[:, None], 3, axis=1)
            for low, high, places in places_of_images(images, start, count):
                part[low - start : high - start] = places
            assert part.tolist() == expected[start : start + count]


def test_pairs_of_a_head_rotate_by_one_axis() -> None:
    assert axes_of_pairs((2, 3, 1), "blocks").tolist() == [0, 0, 1, 1, 1, 2]
    assert axes_of_pairs((4, 2, 2), "interleaved").tolist() == [0, 1, 2, 0, 1, 2, 0, 0]


def test_a_table_of_positions_is_resized_with_its_corners() -> None:
    y, x = np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij")
    table = np.stack([y, x], axis=-1).astype(np.float32)
    found = resized_table(table, 3, 9)
    assert found.shape == (3, 9, 2)
    np.testing.assert_allclose(found[:, 0, 0], [0, 2, 4], atol=1e-6)
    np.testing.assert_allclose(found[1, :, 1], np.linspace(0, 4, 9), atol=1e-6)
    assert resized_table(table, 1, 1).tolist() == [[[0, 0]]]


def test_windows_are_smaller_at_the_end_of_an_image() -> None:
    order, sizes = windows_of(3, 5, 2)
    assert sizes.tolist() == [4, 4, 2, 2, 2, 1]
    assert order.tolist() == [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14]


@pytest.mark.parametrize(("found", "expected"), [
    ((65536, 1 << 30), (65536, 1 << 22)),
    ((1 << 31, 1 << 31), (1 << 22, 1 << 22)),
    ((4096, 1024), (1024, 1024)),
])  # fmt: skip
def test_a_file_cannot_make_images_large(found: tuple[int, int], expected: tuple[int, int]) -> None:
    assert pixel_limits(*found, 16) == expected
    assert pixel_limits(*found, 1024)[1] <= 1 << 24


@pytest.mark.parametrize("resample", [6, 256])
def test_unknown_filters_leave_the_text(
    resample: int, directories: dict[str, Path], tmp_path: Path
) -> None:
    changes: dict[str, object] = {"resample": resample}
    path = changed_copy(directories["qwen3vl"], tmp_path / "model", changes, PROCESSOR)
    check_reads_only_text(path, f"there is no filter {resample}")


def test_deepstack_may_read_the_last_layer(directories: dict[str, Path], tmp_path: Path) -> None:
    """The other parts of the rows are the same as if it read the layer before."""
    shutil.copytree(directories["qwen3vl"], tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config: dict[str, Any] = json.loads(file.read_text("utf-8"))
    found = []
    for indexes in ([0, 1], [0, 2]):
        config["vision_config"]["deepstack_visual_indexes"] = indexes
        file.write_text(json.dumps(config), "utf-8")
        with trinity.load(tmp_path / "model") as model:
            assert model.image_encoder is not None
            found.append(model.image_encoder.encode(small.image(40, 30)).rows)
    before, last = (rows.reshape(len(rows), 3, -1) for rows in found)
    np.testing.assert_array_equal(before[:, :2], last[:, :2])
    assert np.isfinite(last).all()
    assert not np.array_equal(before[:, 2], last[:, 2])


@pytest.mark.parametrize(("key", "value", "message"), [
    ("deepstack_visual_indexes", [1, 0], "deepstack reads"),
    ("deepstack_visual_indexes", [0, 7], "deepstack reads"),
    ("deepstack_visual_indexes", "all", "must be a list"),
    ("temporal_patch_size", 3, "must be 2"),
    ("num_heads", 16, "heads have 2 values; rotation by row and"),
    ("spatial_merge_size", 3, "sides of images are multiples of 16"),
    ("num_position_embeddings", 64, "requires"),
])  # fmt: skip
def test_a_tower_that_contradicts_itself_leaves_the_text(
    key: str, value: object, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    to = tmp_path / "model"
    changed_copy(directories["qwen3vl"], to, {key: value}, part="vision_config")
    check_reads_only_text(to, message)


def test_a_projector_of_another_model_is_refused(
    directories: dict[str, Path], tmp_path: Path
) -> None:
    other = write_mmproj("gemma3", tmp_path / "gemma.gguf")
    with pytest.raises(ConfigError, match=r"gemma3 does not fit the text model .*qwen3vl"):
        trinity.load(directories["qwen3vl"], mmproj=other)
    without = write_mmproj("qwen35", tmp_path / "qwen35.gguf")
    with pytest.raises(ConfigError, match=r"rows for 0 layers .* takes them in 2"):
        trinity.load(directories["qwen3vl"], mmproj=without)
    qwen3vl = write_mmproj("qwen3vl", tmp_path / "qwen3vl.gguf")
    with pytest.raises(ConfigError, match=r"has no rope\.dimension_sections"):
        trinity.load(directories["idefics3"], mmproj=qwen3vl)
