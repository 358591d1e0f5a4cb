"""Directories with one safetensors file, or several with an index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.formats.raw_safetensors import write_safetensors
from trinity.errors import FormatError, InputError
from trinity.formats.checkpoint import INDEX, SINGLE, Checkpoint

A, B, C = (np.full((2, 3), n, np.float32) for n in range(3))
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Write two files: a and b in the first, c in the second."""
    write_safetensors(tmp_path / FIRST, {"a": A, "b": B})
    write_safetensors(tmp_path / SECOND, {"c": C})
    write_index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND})
    return tmp_path


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_one_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / SINGLE, {"a": A})
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.names() == ["a"]
        np.testing.assert_array_equal(checkpoint.tensor("a").all_floats(), A)
        with pytest.raises(FormatError, match="no tensor 'z', which the model needs"):
            checkpoint.tensor("z")


def test_several_files(sharded: Path) -> None:
    with Checkpoint(sharded) as checkpoint:
        assert sorted(checkpoint.names()) == ["a", "b", "c"]
        np.testing.assert_array_equal(checkpoint.tensor("c").all_floats(), C)
        assert checkpoint.tensor("c").source.endswith(SECOND)


def test_missing_shard(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    with pytest.raises(InputError, match=f"1 of the files .* are missing, such as {SECOND}"):
        Checkpoint(sharded)


def test_truncated_shard(sharded: Path) -> None:
    content = (sharded / SECOND).read_bytes()
    (sharded / SECOND).write_bytes(content[:-1])
    with pytest.raises(FormatError, match=rf"{SECOND}: the header describes 24 bytes.*has 23"):
        Checkpoint(sharded)


def test_tensor_missing_from_its_shard(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND})
    with pytest.raises(FormatError, match=f"'d' should be in {SECOND}"):
        Checkpoint(sharded)


def test_tensor_in_another_shard(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "b": SECOND, "c": SECOND})
    with pytest.raises(FormatError, match=f"'b' should be in {SECOND}"):
        Checkpoint(sharded)


def test_tensor_that_the_index_does_not_name(sharded: Path) -> None:
    write_index(sharded, {"a": FIRST, "c": SECOND})
    with pytest.raises(FormatError, match="tensor 'b' is not in"):
        Checkpoint(sharded)


def test_tensor_in_two_shards(sharded: Path) -> None:
    write_safetensors(sharded / SECOND, {"c": C, "a": A})
    with pytest.raises(FormatError, match="tensor 'a' is also in"):
        Checkpoint(sharded)


@pytest.mark.parametrize("weight_map", [None, [], {}, 5, {"a": 3}, {"a": "../x"}, {"a": ""}])
def test_malformed_weight_map(sharded: Path, weight_map: object) -> None:
    write_index(sharded, weight_map)
    with pytest.raises(FormatError, match=INDEX):
        Checkpoint(sharded)


def test_index_with_a_repeated_tensor(sharded: Path) -> None:
    (sharded / INDEX).write_text(f'{{"weight_map": {{"a": "{FIRST}", "a": "{SECOND}"}}}}')
    with pytest.raises(FormatError, match="'a' occurs twice"):
        Checkpoint(sharded)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("model.gguf", "needs no conversion"),
        ("pytorch_model.bin", "save the model as safetensors"),
        ("config.json", "download the whole model"),
    ],
)
def test_directory_without_weights(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=advice):
        Checkpoint(tmp_path)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        Checkpoint(tmp_path / "none")
