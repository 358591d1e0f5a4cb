"""Vision models of MiniCPM-V: slices, versions, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.images import small_minicpm_models as minicpm
from tests.images import small_vision_models as small
from tests.images.mmproj_files import write_changed_mmproj, write_mmproj
from tests.images.test_vision_models import asked
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.images.cutting import sliced_size, slices
from trinity.images.minicpmv import MINICPMV
from trinity.images.patches import nearest_table
from trinity.images.resampler import sines

SETTINGS = MINICPMV.usual_settings


@pytest.mark.parametrize(
    ("size", "grid", "whole", "slice_size"),
    [  # transformers' MiniCPMV4_6ImageProcessorPil with patches of 3.5 pixels, so multiples of 14
        ((1, 1), (0, 0), (448, 448), None),
        ((3, 5000), (0, 0), (14, 18284), None),
        ((17, 23), (0, 0), (392, 518), None),
        ((633, 317), (0, 0), (630, 322), None),
        ((1300, 1200), (3, 3), (462, 434), (462, 434)),
        ((448, 448), (0, 0), (448, 448), None),
        ((449, 448), (2, 1), (448, 448), (322, 630)),
        ((896, 896), (2, 2), (448, 448), (448, 448)),
        ((4000, 3000), (3, 3), (518, 392), (518, 392)),
        ((3000, 4000), (3, 3), (392, 518), (392, 518)),
        ((1920, 1080), (4, 2), (602, 336), (420, 476)),
        ((10000, 100), (6, 1), (4396, 42), (1820, 112)),
    ],
)  # fmt: skip
def test_slices_are_those_of_transformers(
    size: tuple[int, int], grid: tuple[int, int], whole: tuple[int, int],
    slice_size: tuple[int, int] | None,
) -> None:  # fmt: skip
    assert slices(*size, SETTINGS) == grid
    assert sliced_size(*size, SETTINGS, enlarged=not grid[0]) == whole
    if slice_size is not None:
        sides = (max(round(side / count), 1) for side, count in zip(size, grid, strict=True))
        across, down = sides
        assert sliced_size(across, down, SETTINGS, enlarged=True) == slice_size


@pytest.mark.parametrize("size", [(60_000_000, 1), (1, 60_000_000), (200_000, 3)])
def test_very_narrow_images_have_a_limit(size: tuple[int, int]) -> None:
    wide, high = sliced_size(*size, SETTINGS, enlarged=True)
    assert 0 < wide * high <= 4096 * 14 * 14


def test_positions_are_those_of_the_nearest_rows() -> None:
    table = np.arange(70 * 70, dtype=np.float32).reshape(70, 70, 1)
    made = nearest_table(table, 32, 140)[:, :, 0]
    assert made.shape == (32, 140)
    rows, columns = np.floor(70 * np.arange(32) / 32), np.floor(70 * np.arange(140) / 140)
    np.testing.assert_array_equal(made, rows[:, None] * 70 + columns)


def test_sines_have_columns_before_rows() -> None:
    made = sines(3, 5, 8)
    assert made.shape == (3, 5, 8)
    expected = [np.sin(4), np.sin(0.04), np.cos(4), np.cos(0.04)]
    expected += [np.sin(2), np.sin(0.02), np.cos(2), np.cos(0.02)]
    np.testing.assert_allclose(made[2, 4], expected, atol=1e-6)


def _changed(tmp_path: Path, name: str, file: str, **changed: object) -> Path:
    path = small.write_directory(name, tmp_path / "model")
    content: dict[str, Any] = json.loads((path / file).read_text("utf-8"))
    (path / file).write_text(json.dumps(content | changed), "utf-8")
    return path


@pytest.mark.parametrize(("file", "changed", "message"), [
    ("config.json", {"query_num": 7}, "requires"),
    ("config.json", {"vision_config": {}}, "image_size|patch"),
    ("preprocessor_config.json", {"slice_mode": False}, "slice_mode is false"),
    ("preprocessor_config.json", {"patch_size": 16}, "multiples of 16"),
    ("preprocessor_config.json", {"scale_resolution": 1024}, "more than 4096 patches"),
    ("preprocessor_config.json", {"norm_std": [0.5, 0.5, 0.0]}, "image_std"),
])  # fmt: skip
def test_a_tower_that_is_not_supported_leaves_the_text(
    file: str, changed: dict[str, object], message: str, tmp_path: Path
) -> None:
    import re

    path = _changed(tmp_path, "minicpmv", file, **changed)
    lines: list[str] = []
    with trinity.load(path, progress=lines.append) as model:
        assert not model.reads_images
    assert any("images are not read" in line and re.search(message, line) for line in lines), lines


@pytest.mark.parametrize("changed", [
    {"version": 2.0}, {"version": 4.6}, {"vision_encoder": "vit_so400m"}, {"scale_emb": 12},
])  # fmt: skip
def test_other_versions_are_refused(changed: dict[str, object], tmp_path: Path) -> None:
    path = _changed(tmp_path, "minicpmv", "config.json", **changed)
    with pytest.raises(UnsupportedError, match=r"version is .*MiniCPMV 2\.5, 2\.6, 4\.0, 4\.5"):
        trinity.load(path)


@pytest.mark.parametrize(("tensor", "changed", "message"), [
    ("resampler.query", None, "no tensor 'resampler.query'"),
    ("resampler.query", np.zeros((8, 64), np.float32), "requires"),
    ("resampler.kv.weight", np.zeros((128, 16), np.float32), "requires"),
    ("resampler.attn.k.weight", None, "resampler.attn.k.weight"),
    ("resampler.ln_kv.bias", None, "resampler.ln_kv.bias"),
    ("v.position_embd.weight", np.zeros((4899, 32), np.float32), "requires"),
])  # fmt: skip
def test_a_damaged_projector_is_refused(
    tensor: str, changed: Any, message: str, tmp_path: Path, directories: dict[str, Path]
) -> None:
    made = write_changed_mmproj("minicpmv", tmp_path / "mmproj.gguf", {tensor: changed})
    with (
        pytest.raises(ConfigError, match=message),
        trinity.load(directories["minicpmv"], mmproj=made) as model,
    ):
        model.chat(asked(small.image(20, 20)), max_tokens=1)


@pytest.mark.parametrize(("version", "numbered"), [(None, False), (2, False), (3, True), (7, None)])
def test_the_version_says_which_texts_an_image_has(
    version: int | None, numbered: bool | None, tmp_path: Path, directories: dict[str, Path]
) -> None:
    path = tmp_path / "changed.gguf"
    with (
        GGUFProvider(write_mmproj("minicpmv", tmp_path / "mmproj.gguf")) as sound,
        GGUFWriter(path) as writer,
    ):
        metadata = {**sound.metadata, "clip.minicpmv_version": version}
        for key, value in metadata.items():
            if not key.startswith("GGUF") and value is not None:
                writer.add(key, np.uint32(value) if type(value) is int else value)
        for key in sound.tensor_names():
            stored = sound.tensor(key).dequantize()
            writer.add_tensor(key, stored.shape, "F32", stored)
    if numbered is None:
        with pytest.raises(UnsupportedError, match=r"clip\.minicpmv_version is 7; trinity reads 2"):
            trinity.load(directories["minicpmv"], mmproj=path)
        return
    with trinity.load(directories["minicpmv"], mmproj=path) as model:
        ids = model.apply_chat_template(asked(small.image(150, 60), small.image(9, 9)))
        text = model.detokenize([i for i in ids if i < 1 << 30], remove_special=False)
    assert ("<image_id>1</image_id><image></image>" in text) == numbered
    assert ("</slice><slice>" in text) == numbered


@pytest.mark.parametrize("name", minicpm.NAMES)
def test_each_slice_has_as_many_rows(name: str, models: dict[str, trinity.Model]) -> None:
    ids = models[name].apply_chat_template(asked(small.image(300, 200)))
    count = 6 if name == "minicpmv_25" else 8
    assert [len(image.rows) for image in ids.images] == [count] * (5 if count == 6 else 9)
