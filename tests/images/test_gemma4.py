"""Vision models of Gemma 4: sizes of images, layers in which rows see each other, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.images import small_gemma4_models as gemma4
from tests.images import small_vision_models as small
from tests.images.changed_directories import CONFIG, PROCESSOR, changed_copy, check_reads_only_text
from tests.images.mmproj_files import write_changed_mmproj, write_mmproj
from tests.images.test_vision_models import asked
from trinity.errors import ConfigError
from trinity.images.cutting import filled_size
from trinity.images.settings import ImageSettings
from trinity.runtime.image_rows import ImageRows
from trinity.runtime.step import Step

SETTINGS = ImageSettings(
    tile=0, longest_edge=0, splits=False, resample=3, unit=48, least_pixels=1,
    most_pixels=280 * 48**2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("size", "expected"),
    [  # transformers' get_aspect_ratio_preserving_size with patches of 16, 2520 of them, and 3
        ((1, 1), (768, 768)), ((17, 23), (672, 912)), ((896, 896), (768, 768)),
        ((4000, 3000), (912, 672)), ((3, 5000), (48, 13440)), ((5000, 3), (13440, 48)),
        ((1000, 7), (9600, 48)), ((500, 500), (768, 768)), ((1920, 1080), (1056, 576)),
        ((48, 1200), (144, 3984)),
    ],
)  # fmt: skip
def test_sizes_are_those_of_transformers(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert filled_size(*size, SETTINGS) == expected


def test_rows_of_an_image_see_each_other_in_layers_with_a_window() -> None:
    step = Step(8, windows={0, 4}, only_windowed=True)
    step.set_positions(0, 0, 8)
    step.place_images([ImageRows(2, np.zeros((4, 1), np.float32), both_ways=True)], 0, 0, 8)
    assert step.lasts.tolist() == [0, 1, 5, 5, 5, 5, 6, 7]
    assert step.lasts_of_whole.tolist() == list(range(8))


def test_an_image_is_not_larger_than_a_step(directories: dict[str, Path]) -> None:
    with trinity.load(directories["gemma4"], context_length=48) as model:
        ids = model.apply_chat_template(asked(small.image(64, 64), text=""))
        assert sum(len(image.rows) for image in ids.images) <= 48


@pytest.mark.parametrize(("file", "key", "value", "message"), [
    ("config.json", "head_dim", 16, "4 heads of 16 values, 4 of them for keys"),
    ("config.json", "num_key_value_heads", 2, "4 heads of 8 values, 2 of them for keys"),
    ("config.json", "hidden_activation", "silu", "hidden_act is 'silu'"),
    ("config.json", "rope_parameters", {"rope_theta": 1e4}, "rope_theta 10000; trinity reads"),
    ("config.json", "rope_parameters", {"rope_type": "yarn"}, "rope_type is 'yarn'"),
    ("config.json", "position_embedding_size", 100, "tables of positions have 100 rows"),
    ("config.json", "position_embedding_size", 200, "the configuration requires"),
    ("config.json", "pooling_kernel_size", 3, "sides of images are multiples of 8"),
    ("config.json", "patch_size", 8, "sides of images are multiples of 8"),
    ("preprocessor_config.json", "max_soft_tokens", 100, "must be one of 70, 140"),
    ("preprocessor_config.json", "do_rescale", False, "do_rescale is false"),
    ("preprocessor_config.json", "do_normalize", "no", "must be true or false"),
])  # fmt: skip
def test_a_tower_that_is_not_supported_leaves_the_text(
    file: str, key: str, value: object, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    part = "vision_config" if file == CONFIG else ""
    path = changed_copy(directories["gemma4"], tmp_path / "model", {key: value}, file, part)
    check_reads_only_text(path, message)


def test_rows_of_images_have_the_layers_embeddings_of_token_0(
    directories: dict[str, Path], tmp_path: Path
) -> None:
    changes: dict[str, object] = {"pad_token_id": 2}
    path = changed_copy(directories["gemma4_e"], tmp_path / "model", changes, part="text_config")
    check_reads_only_text(path, "pad_token_id is 2; trinity reads 0")


def test_normalized_pixels_are_centered(directories: dict[str, Path], tmp_path: Path) -> None:
    """A mean of 0.5 and a deviation of 0.25 turn 0 .. 1 into -5 .. 3."""
    changes = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    path = changed_copy(directories["gemma4"], tmp_path / "model", changes, PROCESSOR)
    with trinity.load(path) as model:
        assert model.image_encoder is not None
        config = model.image_encoder.config
    assert [(p - config.mean[0]) / config.std[0] for p in (0, 1)] == [-5, 3]


@pytest.mark.parametrize(("name", "values", "message"), [
    ("v.blk.1.attn_k.input_min", [2.0], "the limits of 'v.blk.1.attn_k' are 2 to 0.9 before"),
    ("v.blk.0.ffn_down.output_max", [np.nan], r"-0\.25 to nan after it; the file is damaged"),
    ("v.blk.0.ffn_down.output_max", [1.0, 2.0], "requires 1 values"),
    ("v.std_bias", [0.0] * 32, "'v.std_scale'"),
    ("v.position_embd.weight", None, "no tensor 'v.position_embd.weight'"),
    ("v.position_embd.weight", np.zeros((150, 32)), "tables of positions have|requires"),
    ("v.blk.1.attn_q_norm.weight", [1.0] * 4, "requires 8 values"),
])  # fmt: skip
def test_a_damaged_projector_is_refused(
    name: str, values: Any, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    tensor = None if values is None else np.asarray(values, np.float32)
    path = write_changed_mmproj("gemma4_e", tmp_path / "mmproj.gguf", {name: tensor})
    with (
        pytest.raises(ConfigError, match=message),
        trinity.load(directories["gemma4_e"], mmproj=path) as model,
    ):
        model.chat(asked(small.image(20, 20)), max_tokens=1)


@pytest.mark.parametrize(("name", "values", "message"), [
    ("v.patch_norm.1.weight", [1.0] * 8, "requires 192 values"),
    ("v.patch_norm.2.bias", None, "no tensor 'v.patch_norm.2.bias'"),
    ("v.patch_embd.weight", np.zeros((40, 190)), "expected|requires"),
    ("v.position_embd.weight", np.zeros((60, 40)), "tables of positions have 0|requires"),
    ("mm.input_projection.weight", np.zeros((48, 39)), "requires"),
])  # fmt: skip
def test_a_damaged_projector_without_a_tower_is_refused(
    name: str, values: Any, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    tensor = None if values is None else np.asarray(values, np.float32)
    path = write_changed_mmproj("gemma4_12b", tmp_path / "mmproj.gguf", {name: tensor})
    with pytest.raises(ConfigError, match=message):
        trinity.load(directories["gemma4_12b"], mmproj=path)


@pytest.mark.parametrize(("key", "value", "message"), [
    ("mm_posemb_size", 60, "tables of positions have 60 rows"),
    ("mm_posemb_size", 80, "requires"),
    ("pooling_kernel_size", 3, "sides of images are multiples of 8"),
])  # fmt: skip
def test_an_unfit_directory_without_a_tower_leaves_the_text(
    key: str, value: object, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    to = tmp_path / "model"
    changed_copy(directories["gemma4_12b"], to, {key: value}, part="vision_config")
    check_reads_only_text(to, message)


@pytest.mark.parametrize("name", gemma4.NAMES)
def test_a_projector_of_another_model_is_refused(
    name: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    path = write_mmproj(name, tmp_path / "mmproj.gguf")
    with pytest.raises(ConfigError, match=r"gemma4u?v does not fit the text model \(llama\)"):
        trinity.load(directories["idefics3"], mmproj=path)
