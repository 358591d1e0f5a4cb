"""Weights quantized while loading: made once, then mapped."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import trinity
from tests.tools.golden_models import golden, model_directory
from trinity.errors import FormatError, InputError
from trinity.formats import GGUFProvider
from trinity.quantization import cached, quantize
from trinity.tools.convert import convert

NAME = "llama-grouped"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder; that of compiled kernels does not change."""
    place = tmp_path / "cache" / "weights"
    monkeypatch.setattr(cached, "cache_folder", lambda kind: place)
    return place


def loaded(path: Path, type_name: str = "Q8_0") -> tuple[np.ndarray, list[str]]:
    lines: list[str] = []
    with trinity.load(path, quantize=type_name, kv_type="f32", progress=lines.append) as model:
        return model.logits(golden(NAME).tokens), lines


def test_as_if_converted_and_quantized(tmp_path: Path, folder: Path) -> None:
    """The bits equal those of the two commands run in sequence."""
    directory = model_directory(NAME, tmp_path)
    found, lines = loaded(directory)
    assert any(line.startswith("quantizing to Q8_0, cached in ") for line in lines)
    convert(directory, tmp_path / "plain.gguf", "bf16")
    quantize(tmp_path / "plain.gguf", tmp_path / "quantized.gguf", "Q8_0")
    (cached_file,) = folder.iterdir()
    with GGUFProvider(cached_file) as ours, GGUFProvider(tmp_path / "quantized.gguf") as theirs:
        assert {n: ours.tensor(n).type for n in ours.tensor_names()} == {
            n: theirs.tensor(n).type for n in theirs.tensor_names()
        }
    with trinity.load(tmp_path / "quantized.gguf", kv_type="f32") as model:
        np.testing.assert_array_equal(model.logits(golden(NAME).tokens), found)
    again, lines = loaded(directory)
    np.testing.assert_array_equal(again, found)
    assert not any("quantizing" in line for line in lines)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.full
def test_changed_source_is_quantized_anew(tmp_path: Path, folder: Path) -> None:
    directory = model_directory(NAME, tmp_path)
    loaded(directory)
    (before,) = folder.iterdir()
    os.utime(directory / "model.safetensors", ns=(1, 1))
    loaded(directory)
    (after,) = folder.iterdir()
    assert before.name != after.name
    loaded(directory, "Q4_0")
    assert len(list(folder.iterdir())) == 2


def test_gguf_file(tmp_path: Path) -> None:
    directory = model_directory(NAME, tmp_path)
    convert(directory, tmp_path / "plain.gguf", "bf16")
    np.testing.assert_array_equal(loaded(tmp_path / "plain.gguf")[0], loaded(directory)[0])
    quantize(tmp_path / "plain.gguf", tmp_path / "small.gguf", "Q4_0")
    with pytest.raises(InputError, match="quantized already"):
        loaded(tmp_path / "small.gguf", "Q8_0")


@pytest.mark.full
def test_two_first_runs_at_once(tmp_path: Path, folder: Path) -> None:
    directory = model_directory(NAME, tmp_path)
    results: list[np.ndarray] = []
    threads = [Thread(target=lambda: results.append(loaded(directory)[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    np.testing.assert_array_equal(*results)
    assert [path.suffix for path in folder.iterdir()] == [".gguf"]


def test_damaged_cache_says_what_to_do(tmp_path: Path, folder: Path) -> None:
    directory = model_directory(NAME, tmp_path)
    loaded(directory)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(FormatError, match="remove the file, which is recreated"):
        loaded(directory)


def test_full_disk_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = model_directory(NAME, tmp_path)
    loaded(directory)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match=r"has only 1,000 free; trinity keeps 1 files of .* `rm`"):
        loaded(directory, "Q4_0")
    loaded(directory)


def test_type_and_folder_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = model_directory(NAME, tmp_path)
    with pytest.raises(InputError, match="Q4_X"):
        loaded(directory, "Q4_X")
    (tmp_path / "file").touch()
    monkeypatch.setattr(cached, "cache_folder", lambda kind: tmp_path / "file" / kind)
    with pytest.raises(InputError, match="set TRINITY_CACHE_DIR"):
        loaded(directory)


def test_window_that_gguf_cannot_say_is_kept(shared_data: Path) -> None:
    folder = shared_data / "architectures" / "mistral_window" / "hf"
    with trinity.load(folder, quantize="F32", context_length=40, kv_type="f32") as model:
        assert model.config.sliding_window == 16
        answers = np.load(folder.parent / "logits.npy")
        prompt = json.loads((folder.parent / "golden.json").read_text())["prompt_ids"]
        np.testing.assert_allclose(model.logits(prompt), answers, rtol=0, atol=1e-3)
