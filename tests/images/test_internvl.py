"""Vision models of InternVL: grids of tiles, text models, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.formats.raw_safetensors import write_safetensors
from tests.images import small_internvl_models as internvl
from tests.images import small_vision_models as small
from tests.images.changed_directories import changed_copy, check_reads_only_text
from tests.images.mmproj_files import write_mmproj
from tests.images.test_vision_models import GREEDY, asked, logits_of
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.images.cutting import nearest_grid
from trinity.images.settings import ImageSettings

SETTINGS = ImageSettings(tile=448, longest_edge=448, splits=True, resample=3, most_tiles=12)


@pytest.mark.parametrize(
    ("size", "expected"),
    [  # columns and rows of transformers' get_optimal_tiled_canvas with 1 to 12 tiles
        ((1, 1), (1, 1)), ((3, 5000), (1, 12)), ((17, 23), (3, 4)), ((896, 896), (2, 2)),
        ((4000, 3000), (4, 3)), ((1920, 1080), (4, 2)), ((1000, 7), (12, 1)), ((448, 448), (1, 1)),
        ((700, 700), (2, 2)), ((633, 633), (1, 1)), ((2000, 2000), (3, 3)),
    ],
)  # fmt: skip
def test_grids_are_those_of_transformers(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert nearest_grid(*size, SETTINGS) == expected


@pytest.mark.parametrize(("file", "part", "key", "value", "message"), [
    ("config.json", "", "vision_feature_layer", -2, "vision_feature_layer is -2"),
    ("config.json", "", "vision_feature_select_strategy", "full", "strategy is 'full'"),
    ("config.json", "", "projector_hidden_act", "relu", "projector_hidden_act is 'relu'"),
    ("config.json", "", "downsample_ratio", 0.25, "whole blocks"),
    ("config.json", "vision_config", "use_mean_pooling", False, "use_mean_pooling is False"),
    ("config.json", "vision_config", "norm_type", "batch_norm", "norm_type is 'batch_norm'"),
    ("config.json", "vision_config", "use_qk_norm", True, "attention.q_norm"),
    ("config.json", "vision_config", "image_size", [48, 96], "image_size"),
    ("config.json", "vision_config", "hidden_act", "silu", "hidden_act is 'silu'"),
    ("preprocessor_config.json", "", "size", {"height": 48, "width": 96}, "not square"),
    ("preprocessor_config.json", "", "size", {"height": 96, "width": 96}, "tiles of 96"),
    ("preprocessor_config.json", "", "min_patches", 7, "becomes 7 to 6 tiles"),
])  # fmt: skip
def test_a_tower_that_is_not_supported_leaves_the_text(
    file: str, part: str, key: str, value: object, message: str, directories: dict[str, Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    path = changed_copy(directories["internvl"], tmp_path / "model", {key: value}, file, part)
    check_reads_only_text(path, message)


@pytest.mark.parametrize("kind", ["mamba", 3])
def test_a_text_model_that_is_not_supported_is_refused(
    kind: object, directories: dict[str, Path], tmp_path: Path
) -> None:
    source = directories["internvl"]
    path = changed_copy(source, tmp_path / "model", {"model_type": kind}, part="text_config")
    message = f"model_type is {kind!r}; trinity reads InternVLForConditionalGeneration with llama"
    with pytest.raises(UnsupportedError, match=message):
        trinity.load(path)


@pytest.mark.parametrize(("name", "tensor", "message"), [
    ("v.class_embd", np.zeros(3), "requires 32 values"),
    ("v.position_embd.weight", np.zeros((36, 32)), "requires"),
    ("v.blk.1.ls1.weight", None, "v.blk.1.ls1.weight"),
    ("v.blk.1.ln2.bias", None, "v.blk.1.ln2.bias"),
    ("mm.model.mlp.0.bias", None, "mm.model.mlp.0.bias"),
    ("mm.model.mlp.1.weight", None, "no tensor 'mm.model.mlp.1.weight'"),
    ("mm.model.mlp.1.weight", np.zeros((48, 64)), "requires"),
])  # fmt: skip
def test_a_damaged_projector_is_refused(
    name: str, tensor: Any, message: str, directories: dict[str, Path], tmp_path: Path
) -> None:
    made, path = tmp_path / "changed.gguf", tmp_path / "mmproj.gguf"
    with GGUFProvider(write_mmproj("internvl", path)) as sound, GGUFWriter(made) as writer:
        for key, value in sound.metadata.items():
            if not key.startswith("GGUF"):
                writer.add(key, np.uint32(value) if type(value) is int else value)
        known = {one: sound.tensor(one).dequantize() for one in sound.tensor_names()}
        for own, stored in {**known, name: tensor}.items():
            if stored is not None:
                writer.add_tensor(own, stored.shape, "F32", np.asarray(stored, np.float32))
    with (
        pytest.raises(ConfigError, match=message),
        trinity.load(directories["internvl"], mmproj=made) as model,
    ):
        model.chat(asked(small.image(20, 20)), max_tokens=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", internvl.NAMES)
def test_norms_follow_the_file(name: str, models: dict[str, trinity.Model]) -> None:
    images = models[name].image_encoder
    assert images is not None
    assert (images.config.norm, images.config.row_norms) == (
        ("rms", True) if name == "internvl_6b" else ("layer", False)
    )


@pytest.mark.parametrize("name", internvl.NAMES)
def test_a_directory_of_opengvlab_is_the_same_model(
    name: str, models: dict[str, trinity.Model], tmp_path: Path
) -> None:
    path = small.write_chat_directory(name, tmp_path / "chat")
    with trinity.load(path) as model:
        for sizes in (*([size] for size in small.SIZES), small.SIZES[:2]):
            images = [small.image(*size) for size in sizes]
            ids, same = (m.apply_chat_template(asked(*images)) for m in (model, models[name]))
            assert [i for i in ids if i < 1 << 30] == [i for i in same if i < 1 << 30]
            assert len(ids) == len(same)
            for mine, theirs in zip(ids.images, same.images, strict=True):
                np.testing.assert_array_equal(mine.rows, theirs.rows)
        np.testing.assert_array_equal(logits_of(model, ids, 4), logits_of(models[name], same, 4))
        answer = model.generate(ids, **GREEDY).token_ids
    assert answer == models[name].generate(same, **GREEDY).token_ids


def test_the_text_model_of_a_directory_of_opengvlab_may_be_internlm2(tmp_path: Path) -> None:
    """Its logits are those of Llama with the same weights."""
    text = internvl.config("internvl")["text_config"]
    drawn = {
        key: tensor
        for key, tensor in internvl.chat_tensors(small.tensors("internvl")).items()
        if not ("self_attn" in key and key.endswith(".bias"))
    }
    found = []
    for kind, tensors in (("llama", drawn), ("internlm2", internvl.as_internlm2(drawn))):
        llm = {**text, "model_type": kind, "bias": False}
        path = small.write_chat_directory("internvl", tmp_path / kind, llm_config=llm)
        write_safetensors(path / "model.safetensors", tensors)
        with trinity.load(path) as model:
            assert model.config.architecture == kind
            ids = model.apply_chat_template(asked(small.image(100, 60)))
            found.append(logits_of(model, ids, 4))
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)


@pytest.mark.parametrize(("changed", "message"), [
    ({"ps_version": "v1"}, "ps_version is 'v1'"),
    ({"ps_version": None}, "ps_version is None"),
    ({"select_layer": -4}, "select_layer is -4"),
    ({"use_thumbnail": False}, "use_thumbnail is False"),
    ({"pad2square": True}, "pad2square is True"),
    ({"force_image_size": 96}, "tiles of 96"),
    ({"max_dynamic_patch": "many"}, "max_dynamic_patch"),
])  # fmt: skip
def test_a_directory_of_opengvlab_that_is_not_supported_leaves_the_text(
    changed: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = small.write_chat_directory("internvl", tmp_path / "chat", **changed)
    check_reads_only_text(path, message)


def test_a_directory_of_opengvlab_may_have_no_tiles(tmp_path: Path) -> None:
    path = small.write_chat_directory("internvl", tmp_path / "chat", dynamic_image_size=False)
    with trinity.load(path) as model:
        ids = model.apply_chat_template(asked(small.image(300, 7)))
    assert [len(image.rows) for image in ids.images] == [9]
