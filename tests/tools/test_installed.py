"""The list of installed models, valid and damaged, and their removal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.ollama_stores import layer, write_manifest, write_store
from tests.tiny_models import write_tiny_model
from tests.tools.golden_models import model_directory
from trinity.cache.cache_folder import cache_folder
from trinity.cli.application import application
from trinity.errors import InputError
from trinity.tools.file_type import FILE_TYPES
from trinity.tools.installed import Installed, installed, own_file

COMMIT, OTHER = "a" * 40, "b" * 40


def by_name() -> dict[str, Installed]:
    return {model.name: model for model in installed()}


def cached(places: Path, repository: str, commit: str = COMMIT, called: str = "main") -> Path:
    """A snapshot's folder in the cache."""
    folder = places / "hub" / f"models--{repository.replace('/', '--')}"
    for name in ("blobs", "refs", f"snapshots/{commit}"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "refs" / called).write_text(commit)
    return folder / "snapshots" / commit


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(application(), list(arguments), input=input)


def test_nothing(places: Path) -> None:
    assert by_name() == {}
    result = run("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no models found; `trinity pull" in result.stderr


def test_own(places: Path) -> None:
    folder = cache_folder("weights")
    folder.mkdir(parents=True)
    path, damaged = folder / "m-Q8_0-1-2.gguf", folder / "n.gguf"
    write_tiny_model(path, type="Q8_0")
    damaged.write_bytes(path.read_bytes()[:1000])
    (folder / ".trinity-1.tmp").touch()
    found = by_name()
    assert set(found) == {str(path), str(damaged)}
    model = found[str(path)]
    assert (model.kept_by, model.place, model.type, model.family) == (
        "trinity",
        str(folder),
        "Q8_0",
        "llama",
    )
    assert model.num_bytes == path.stat().st_size
    assert model.problem is None
    assert found[str(damaged)].problem


def test_cache_of_the_hub(places: Path, tmp_path: Path) -> None:
    top = cached(places, "u/r")
    write_tiny_model(top / "m-Q4_0.gguf", type="Q4_0", metadata={"general.file_type": "x"})
    write_tiny_model(top / "k.gguf", type="Q4_1", metadata={"general.file_type": 15})
    write_tiny_model(top / "m-Q4_K_M.gguf", type="Q4_K", metadata={"general.file_type": 15})
    (top / "m-Q8_0.gguf").symlink_to("../../blobs/gone")
    (top / "s-00001-of-00002.gguf").touch()
    (top / "mmproj.gguf").touch()
    (top / "broken.gguf").write_bytes(b"GGUF\x03")
    write_tiny_model(cached(places, "u/r", OTHER, "v1") / "x.gguf")
    directory = model_directory("llama-grouped", tmp_path)
    for path in directory.iterdir():
        path.rename(cached(places, "u/d") / path.name)
    partial = cached(places, "u/p").parents[1] / "blobs" / "x.trinity.incomplete"
    partial.write_bytes(b"12345")
    (places / "hub" / "models--..--x").mkdir()
    (places / "hub" / "datasets--u--d").mkdir()
    found = by_name()
    assert set(found) == {
        "hf:u/r:m-Q4_0.gguf", "hf:u/r:k.gguf", "hf:u/r:m-Q4_K_M.gguf", "hf:u/r:m-Q8_0.gguf",
        "hf:u/r:s-00001-of-00002.gguf",
        "hf:u/r:broken.gguf", "hf:u/r@v1:x.gguf", "hf:u/d", "hf:u/p",
    }  # fmt: skip
    sound = {name for name, model in found.items() if model.problem is None}
    types = {name: found[name].type for name in sound}
    assert types == {
        "hf:u/r:m-Q4_0.gguf": "Q4_0",
        "hf:u/r:k.gguf": "Q4_1",
        "hf:u/r:m-Q4_K_M.gguf": "Q4_K_M",
        "hf:u/r@v1:x.gguf": "F32",
        "hf:u/d": "BF16",
    }
    problems = {name: str(model.problem) for name, model in found.items()}
    assert problems["hf:u/r:m-Q8_0.gguf"].startswith("m-Q8_0.gguf is missing; ")
    assert problems["hf:u/r:s-00001-of-00002.gguf"].startswith("s-00002-of-00002.gguf is missing")
    assert "broken.gguf: " in problems["hf:u/r:broken.gguf"]
    assert problems["hf:u/p"].startswith("an unfinished download")
    assert found["hf:u/p"].num_bytes == 5


def test_names_of_mixes_are_those_of_quantize() -> None:
    from trinity.quantization import MIXES

    for mix in MIXES.values():
        if mix.name != "I2_S":  # whose number is bitnet.cpp's, and Q1_0's in llama.cpp
            assert FILE_TYPES[mix.file_type] == (mix.name, mix.base)


def test_store_of_ollama(places: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", type="Q4_0")
    root = places / "ollama"
    write_store(root, tmp_path / "m.gguf")
    cloud = {"model_format": "gguf", "remote_host": "https://x"}
    write_manifest(root, "registry.ollama.ai/library/c/latest", [], cloud)
    gone = layer(root, "model", b"xx")
    write_manifest(root, "registry.ollama.ai/library/g/1b", [gone])
    digest = str(gone["digest"]).replace(":", "-")
    (root / "blobs" / digest).unlink()
    found = by_name()
    assert set(found) == {"ollama:m:latest", "ollama:c:latest", "ollama:g:1b"}
    model = found["ollama:m:latest"]
    assert (model.kept_by, model.type, model.family, model.problem) == (
        "Ollama",
        "Q4_0",
        "llama",
        None,
    )
    assert "a cloud model" in str(found["ollama:c:latest"].problem)
    assert "is missing" in str(found["ollama:g:1b"].problem)


def test_list(places: Path, tmp_path: Path) -> None:
    write_tiny_model(cached(places, "u/r") / "m.gguf")
    (cached(places, "u/e") / "e\x1b[2J.gguf").write_bytes(b"x")
    write_tiny_model(tmp_path / "m.gguf")
    write_store(places / "ollama", tmp_path / "m.gguf")
    text = run("list")
    assert text.exit_code == 0
    lines = text.stdout.splitlines()
    assert lines[0] == f"{places / 'hub'}, kept by huggingface_hub, 0.40 MB:"
    assert lines[1].split()[0] == "hf:u/e:e\\x1b[2J.gguf"
    assert "unusable: " in lines[1]
    assert lines[2].split() == ["hf:u/r:m.gguf", "0.40", "MB", "F32", "llama"]
    assert lines[4] == f"{places / 'ollama'}, kept by Ollama, 0.40 MB:"
    models = json.loads(run("list", "--json").stdout)["models"]
    assert [model["model"] for model in models][1:] == ["hf:u/r:m.gguf", "ollama:m:latest"]
    assert [model["place"] for model in models[1:]] == [str(places / "hub"), str(places / "ollama")]
    assert set(models[0]) == {"model", "kept_by", "place", "bytes", "type", "family", "problem"}


def test_list_without_the_library(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", None)
    result = run("list")
    assert result.exit_code == 0
    assert "huggingface_hub is not installed" in result.stderr


def own(name: str = "m-Q4_0-1-2.gguf") -> Path:
    folder = cache_folder("weights")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x" * 10)
    return folder / name


def test_rm(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = own(), own("n.gguf")
    result = run("rm", str(first), "n.gguf", input="n\n")
    assert result.exit_code == 1
    assert "error: nothing was removed" in result.stderr
    assert run("rm", "n.gguf").exit_code == 1  # nobody answers
    assert first.exists()
    assert second.exists()
    assert run("rm", "n.gguf", input="y\n").exit_code == 0
    assert not second.exists()
    monkeypatch.chdir(first.parent)
    assert run("rm", "--yes", f".{os.sep}{first.name}").exit_code == 0
    assert not first.exists()


def test_rm_of_all(places: Path) -> None:
    assert run("rm", "--all").exit_code == 0
    first, second = own(), own("n.gguf")
    (first.parent / "folder.gguf").mkdir()
    other = first.parent / "other.txt"
    other.touch()
    for wrong in (["--all", "n.gguf"], []):
        result = run("rm", "--yes", *wrong)
        assert result.exit_code == 2
        assert "or --all" in result.stderr
    result = run("rm", "--all", input="n\n")
    assert "remove 2 of trinity's files?" in result.stderr
    assert first.exists()
    assert run("rm", "--all", input="y\n").exit_code == 0
    assert not first.exists()
    assert not second.exists()
    assert other.exists()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("hf:u/r@v1:m.gguf", "`hf cache rm model/u/r` removes it"),
        ("hf:u/../r", "has more parts than a user and a repository"),
        ("ollama:m:1b", "`ollama rm m:1b` removes it"),
        ("mine.gguf", "there is no such model"),
        ("../kernels/k.gguf", "this file is not in"),
        ("{places}/mine.gguf", "this file is not in"),
        ("{places}/own/weights/../kernels/k.gguf", "this file is not in"),
        ("{places}/own/weights", "this file is not in"),
        ("", "there is no such model"),
        ("..", "there is no such model"),
        ("lock.txt", "there is no such model"),
        ("folder.gguf", "there is no such model"),
    ],
)
def test_rm_is_bounded(places: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
    weights = own().parent
    (weights / "lock.txt").touch()
    (weights / "folder.gguf").mkdir()
    (weights.parent / "kernels").mkdir()
    for path in (places / "mine.gguf", weights.parent / "kernels" / "k.gguf"):
        path.touch()
    monkeypatch.chdir(weights)
    before = sorted(places.rglob("*"))
    result = run("rm", "--yes", name.format(places=places))
    assert result.exit_code == 1
    assert what in result.stderr
    assert sorted(places.rglob("*")) == before


def test_a_link_is_removed_and_not_what_it_names(places: Path) -> None:
    kept = places / "kept.gguf"
    kept.write_bytes(b"x")
    link = own().parent / "link.gguf"
    link.symlink_to(kept)
    assert run("rm", "--yes", "link.gguf").exit_code == 0
    assert not link.is_symlink()
    assert kept.exists()


def test_name_with_a_zero(places: Path) -> None:
    with pytest.raises(InputError, match="there is no such model"):
        own_file("a\0.gguf")
