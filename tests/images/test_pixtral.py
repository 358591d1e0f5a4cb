"""Vision models of Mistral: sizes of images, tokens between lines, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.images import small_vision_models as small
from tests.images.changed_directories import changed_copy, check_reads_only_text
from tests.images.mmproj_files import write_changed_mmproj
from tests.images.test_vision_models import GREEDY, asked
from trinity.errors import ConfigError
from trinity.images.cutting import shrunk_size
from trinity.images.settings import ImageSettings


@pytest.mark.parametrize(
    ("size", "expected"),
    [  # transformers' get_resize_output_image_size; it refuses the second
        ((1, 1), (28, 28)), ((3, 5000), (28, 1540)), ((17, 23), (28, 28)), ((896, 896), (896, 896)),
        ((4000, 3000), (1540, 1176)), ((3000, 4000), (1176, 1540)), ((1541, 29), (1540, 28)),
        ((5000, 7), (1540, 28)), ((2000, 1999), (1540, 1540)),
    ],
)  # fmt: skip
def test_sizes_are_those_of_transformers(size: tuple[int, int], expected: tuple[int, int]) -> None:
    settings = ImageSettings(tile=0, longest_edge=1540, splits=False, resample=3, unit=28)
    assert shrunk_size(*size, settings) == expected


def test_tokens_end_the_lines_of_an_image(models: dict[str, trinity.Model]) -> None:
    model = models["mistral3"]
    ids = model.apply_chat_template(asked(small.image(40, 20), text=""))
    rows = [len(image.rows) for image in ids.images]
    assert rows == [3, 3]
    special = {token: 256 + number for number, token in enumerate(small.SPECIAL["mistral3"])}
    first, second = ids.images
    assert ids[first.end : second.first] == [special["[IMG_BREAK]"]]
    assert ids[second.end : second.end + 2] == [special["[IMG_END]"], special["[/INST]"]]


@pytest.mark.parametrize(("part", "key", "value", "message"), [
    ("", "vision_feature_layer", -2, "vision_feature_layer is -2"),
    ("", "vision_feature_layer", [-1, -2], r"vision_feature_layer is \[-1, -2\]"),
    ("", "projector_hidden_act", "relu", "the projector of images has .* 'relu'"),
    ("", "spatial_merge_size", 4, "requires"),
    ("text_config", "rms_norm_eps", 1e-6, "has rms_norm_eps 1e-06"),
    ("vision_config", "rope_theta", 1e5, "rope_theta of the vision tower is 100000"),
    ("vision_config", "rope_parameters", {"rope_type": "yarn"}, "its rope_type 'yarn'"),
    ("vision_config", "hidden_act", "relu", "hidden_act is 'relu'"),
    ("vision_config", "num_attention_heads", 16, "needs a multiple of 4"),
    ("vision_config", "image_size", [96, 96], "image_size"),
])  # fmt: skip
def test_a_tower_that_is_not_supported_leaves_the_text(
    part: str, key: str, value: object, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    path = changed_copy(directories["mistral3"], tmp_path / "model", {key: value}, part=part)
    check_reads_only_text(path, message)


@pytest.mark.parametrize(("name", "shape", "message"), [
    ("v.pre_ln.weight", None, "'v.pre_ln.weight'"),
    ("v.pre_ln.weight", (16,), "requires 32 values"),
    ("mm.input_norm.weight", (16,), "requires 32 values"),
    ("mm.patch_merger.weight", None, r"'mm\.1\.weight' has shape"),
    ("mm.patch_merger.weight", (32, 33), r"expected \(n, n \* patches\)"),
    ("mm.patch_merger.weight", (32, 64), r"requires \(32, 128\)"),
    ("mm.1.weight", None, "no tensor 'mm.1.weight'"),
    ("mm.1.weight", (48, 16), r"requires \(48, 32\)"),
    ("mm.2.weight", (48, 16), r"requires \(48, 48\)"),
    ("v.blk.1.attn_q.weight", (30, 32), "not divided by 2 heads"),
    ("v.blk.1.attn_k.weight", (16, 32), r"requires \(32, 32\)"),
])  # fmt: skip
def test_a_damaged_projector_is_refused(
    name: str, shape: tuple[int, ...] | None, message: str, directories: dict[str, Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    tensor = None if shape is None else np.zeros(shape, np.float32)
    path = write_changed_mmproj("mistral3", tmp_path / "mmproj.gguf", {name: tensor})
    with (
        pytest.raises(ConfigError, match=message),
        trinity.load(directories["mistral3"], mmproj=path) as model,
    ):
        model.chat(asked(small.image(20, 20)), **GREEDY)


@pytest.mark.parametrize(("key", "value", "message"), [
    ("vision_feature_layer", None, "vision_feature_layer is -2; trinity reads -1"),
    ("vision_feature_select_strategy", "default", "is 'default'; trinity reads 'full'"),
])  # fmt: skip
def test_pixtral_12b_reads_all_patches_of_the_last_layer(
    key: str, value: object, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(directories["pixtral"], tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    content = {name: own for name, own in content.items() if name != key}
    path.write_text(json.dumps(content | ({} if value is None else {key: value})), "utf-8")
    check_reads_only_text(tmp_path / "model", message)
