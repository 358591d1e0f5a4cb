"""The models that `trinity serve` offers if none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.ollama_stores import write_store
from tests.tiny_models import write_tiny_model
from tests.tools.golden_models import model_directory
from trinity.cli.application import application
from trinity.errors import InputError
from trinity.server import serving
from trinity.server.model_refs import name_and_ref
from trinity.server.settings import ServerOptions
from trinity.tools.local_models import local_models


def refs(folder: Path | None, notes: list[str] | None = None) -> dict[str, str]:
    notice = (lambda line: None) if notes is None else notes.append
    found = local_models(None if folder is None else str(folder), notice)
    return dict(map(name_and_ref, found))


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "inside").mkdir(parents=True)
    write_tiny_model(folder / "b.gguf")
    write_tiny_model(folder / "inside" / "a model.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF\x03")
    (folder / "mmproj-b.gguf").touch()
    (folder / "notes.txt").touch()
    write_tiny_model(folder / "a-encoder.gguf", arch="bert")
    model_directory("llama-grouped", folder)
    notes: list[str] = []
    found = refs(folder, notes)
    assert found == {
        "b": str(folder / "b.gguf"),
        "inside/a-model": str(folder / "inside" / "a model.gguf"),
        "llama-grouped": str(folder / "llama-grouped"),
        "a-encoder": str(folder / "a-encoder.gguf"),
    }
    assert next(reversed(found)) == "a-encoder"  # requests that name no model are for text
    (note,) = notes
    assert note.startswith(f"note: {folder / 'broken.gguf'} is not served: ")


def test_the_stores(places: Path, tmp_path: Path) -> None:
    assert refs(None) == {}
    write_tiny_model(tmp_path / "m.gguf", type="Q4_0")
    write_store(places / "ollama", tmp_path / "m.gguf")
    own = places / "own" / "weights"
    own.mkdir(parents=True)
    write_tiny_model(own / "m-Q8_0-1-2.gguf")
    snapshot = places / "hub" / "models--u--r" / "snapshots" / ("a" * 40)
    for name in ("blobs", "refs"):
        (places / "hub" / "models--u--r" / name).mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (places / "hub" / "models--u--r" / "refs" / "v1").write_text("a" * 40)
    write_tiny_model(snapshot / "x.gguf")
    found = refs(None)
    assert found == {"u/r-v1:x.gguf": "hf:u/r@v1:x.gguf", "m": "ollama:m:latest"}


@pytest.mark.parametrize(
    ("made", "words"), [(False, "this is not a folder"), (True, "there is no model in this folder")]
)
def test_a_folder_without_models(tmp_path: Path, made: bool, words: str) -> None:
    folder = tmp_path / "x"
    if made:
        folder.mkdir()
    with pytest.raises(InputError, match=words):
        refs(folder)


class Served:
    """What the command serves."""

    refs: list[str]
    options: ServerOptions

    def __call__(self, refs: list[str], options: ServerOptions, *rest: Any) -> None:
        self.refs, self.options = refs, options


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Served, str, int]:
    served = Served()
    monkeypatch.setattr(serving, "serve", served)
    monkeypatch.setattr("trinity.cli.serve.leave_threads", lambda status: None)
    result = CliRunner().invoke(application(), ["serve", *arguments])
    return served, result.stderr, result.exit_code


@pytest.mark.full
def test_the_command(places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, said, _ = run(monkeypatch)
    assert "using the demo chat model" in said
    assert [ref.partition("=")[0] for ref in served.refs] == ["demo"]
    assert served.options.preload

    folder = tmp_path / "models"
    folder.mkdir()
    write_tiny_model(folder / "a.gguf")
    served, said, _ = run(monkeypatch, "--models-dir", str(folder))
    assert served.refs == [f"a={folder / 'a.gguf'}"]
    assert served.options.preload
    assert served.options.memory_limit is None

    write_tiny_model(folder / "b.gguf")
    served, said, _ = run(monkeypatch, "--models-dir", str(folder))
    assert "serving a, b" in said
    assert "a answers requests that name no model" in said
    assert not served.options.preload
    assert served.options.memory_limit
    served, said, _ = run(monkeypatch, "--models-dir", str(folder), "--memory-limit", "1G")
    assert served.options.memory_limit == 1 << 30

    preset = tmp_path / "presets.ini"
    preset.write_text(f"[a]\nc = 64\n[mine]\nmodel = {folder / 'a.gguf'}\n")
    served, said, _ = run(monkeypatch, "--models-preset", str(preset))
    assert served.refs == [f"mine={folder / 'a.gguf'}"]
    assert "no model 'a'" in said
    found = ("--models-dir", str(folder), "--models-preset", str(preset))
    served, _, _ = run(monkeypatch, *found)
    assert [ref.partition("=")[0] for ref in served.refs] == ["mine", "a", "b"]
    served, _, _ = run(monkeypatch, "--model", "x.gguf", *found[2:])
    assert [ref.partition("=")[0] for ref in served.refs] == ["x.gguf", "mine"]

    *_, said, status = run(monkeypatch, "--models-dir", str(folder), "--model", "x.gguf")
    assert status == 2
    assert "--model and --models-dir exclude each other" in said
