"""Cached tokenizer keys equal newly made ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.tools.golden_models import NAMES, golden, model_directory
from trinity.providers import kept_keys, open_weights


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder; keys of small files are cached too."""
    monkeypatch.setattr(kept_keys, "cache_folder", lambda kind: tmp_path / "cache" / kind)
    monkeypatch.setattr(kept_keys, "_SMALLEST", 0)
    return tmp_path / "cache" / "tokenizers"


@pytest.mark.parametrize("name", NAMES)
def test_kept_keys_are_those_that_were_made(name: str, tmp_path: Path, folder: Path) -> None:
    directory = model_directory(name, tmp_path)
    made, kept = (dict(open_weights(directory).metadata) for _ in range(2))
    assert list(made) == list(kept)
    for key, value in made.items():
        assert isinstance(kept[key], type(value)), key
        np.testing.assert_array_equal(kept[key], value, err_msg=key)  # type: ignore[arg-type]
    assert len(list(folder.iterdir())) == 1
    expected = golden(name)
    assert trinity.load_tokenizer(directory).encode(expected.text) == expected.text_ids


def test_changed_tokenizer_is_read_anew(tmp_path: Path, folder: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    for time in (1, 2):
        for path in directory.glob("tokenizer*"):
            os.utime(path, ns=(time, time))
        assert list(open_weights(directory).metadata)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.full
def test_damaged_or_impossible_cache_does_no_harm(tmp_path: Path, folder: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    keys = dict(open_weights(directory).metadata)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert list(open_weights(directory).metadata) == list(keys)
    for other in folder.iterdir():
        other.unlink()
    folder.rmdir()
    folder.touch()
    assert list(open_weights(directory).metadata) == list(keys)
