from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.expert_models import write_expert_model
from tests.tiny_models import write_tiny_model
from trinity.cli.imatrix import CHUNK
from trinity.errors import InputError
from trinity.formats.imatrix import DEFAULT_CHUNK_SIZE, read_imatrix
from trinity.processes.command_line import INTERRUPTED

TEXT = "All happy families are alike. " * 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imatrix")
    write_tiny_model(path / "model.gguf")
    (path / "text.txt").write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def given(folder: Path) -> list[str]:
    """Return the options of every run: portable kernels, one thread."""
    return [
        "imatrix", "-m", str(folder / "model.gguf"), "-f", str(folder / "text.txt"), "-c", "32",
        "-t", "1", "--isa", "portable",
    ]  # fmt: skip


@pytest.mark.full
def test_a_run_and_its_file(run: Run, given: list[str], folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "imatrix.gguf"
    result = run(*given, "-o", str(out))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "14 weights, 12 chunks of 32 tokens" in result.stderr
    assert "12 of 12 chunks: PPL " in result.stderr
    found = read_imatrix(out)
    assert found.datasets == (str(folder / "text.txt"),)
    assert len(found.entries) == 14
    quiet = run(*given, "-o", str(out), "--force", "--no-ppl", "--chunks", "3", "--from-chunk", "1")
    assert "3 of 3 chunks" in quiet.stderr
    assert "PPL" not in quiet.stderr
    assert read_imatrix(out).chunk_count == 3


@pytest.mark.full
def test_experts_that_no_token_took(run: Run, folder: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "experts.gguf", tmp_path / "imatrix.gguf"
    write_expert_model(model)
    given = ["imatrix", "-m", str(model), "-f", str(folder / "text.txt"), "--isa", "portable"]
    result = run(*given, "-c", "4", "--chunks", "1", "-o", str(out))
    assert result.exit_code == 0, result.stderr
    unseen = read_imatrix(out).unseen_experts
    assert unseen
    layer, expert = unseen[0]
    assert f"no token used {len(unseen)} experts: {expert} of {layer}" in result.stderr
    result = run(*given, "-c", "200", "-o", str(out), "--force")
    assert read_imatrix(out).unseen_experts == []
    assert "no token" not in result.stderr


def test_merging_alone_needs_no_model(run: Run, given: list[str], tmp_path: Path) -> None:
    a, b, both = (str(tmp_path / name) for name in ("a.gguf", "b.gguf", "both.gguf"))
    run(*given, "-o", a, "--chunks", "2")
    run(*given, "-o", b, "--in-file", a, "--from-chunk", "2")
    assert read_imatrix(b).chunk_count == 12
    result = run("imatrix", "--in-file", a, "--in-file", b, "-o", both)
    assert result.exit_code == 0, result.stderr
    found = read_imatrix(both)
    assert found.chunk_count == 14
    name = next(iter(found.entries))
    sums = [read_imatrix(path).entries[name].sums for path in (a, b)]
    np.testing.assert_allclose(found.entries[name].sums, sum(sums), rtol=1e-6)


@pytest.mark.full
def test_resuming(run: Run, given: list[str], tmp_path: Path) -> None:
    out, whole = str(tmp_path / "out.gguf"), str(tmp_path / "whole.gguf")
    run(*given, "-o", whole)
    assert run(*given, "-o", out, "--resume", "--chunks", "5").exit_code == 0  # none there: begins
    result = run(*given, "-o", out, "--resume")
    assert result.exit_code == 0, result.stderr
    assert "5 of 12" not in result.stderr
    assert read_imatrix(out).chunk_count == 12
    for name, entry in read_imatrix(whole).entries.items():
        np.testing.assert_allclose(read_imatrix(out).entries[name].sums, entry.sums, rtol=1e-6)


@pytest.mark.full
def test_errors_say_what_to_do(run: Run, given: list[str], folder: Path, tmp_path: Path) -> None:
    model = shutil.copy(folder / "model.gguf", tmp_path / "copy.gguf")
    before = model.read_bytes()
    (tmp_path / "no.dat").write_bytes(b"Once")
    out = ("-o", str(tmp_path / "out.gguf"))
    for arguments, message in (
        ((*given, "-m", str(model), "-o", str(model)), "give --out another name"),
        ((*given, "-o", str(tmp_path / "none" / "out.gguf")), "there is no folder"),
        ((*given, *out, "--in-file", str(tmp_path / "no.dat")), "not an importance matrix"),
        ((*given, *out, "--in-file", str(model)), "not an importance matrix but a GGUF file"),
        ((*given, *out, "-c", "4096"), "text.txt: the text has"),
        ((*given, "-o", str(tmp_path / "no.dat")), "--force to replace it"),
        ((*given, "-o", str(tmp_path / "no.dat"), "--resume"), "not an importance matrix"),
        (
            ("imatrix", "--in-file", str(model), "-o", str(model), "--force"),
            "not an importance matrix",
        ),
        ((*given, *out, "--process-output"), "no separate output.weight"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1, arguments
        assert message in result.stderr
    assert not (tmp_path / "out.gguf").exists()
    assert model.read_bytes() == before
    usage = run("imatrix", *out, "-f", str(folder / "text.txt"))
    assert usage.exit_code == 2
    assert "--model" in usage.stderr


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal")
def test_ctrl_c_keeps_whole_chunks(given: list[str], folder: Path, tmp_path: Path) -> None:
    """--resume computes the remaining chunks."""
    text = tmp_path / "long.txt"
    text.write_text(TEXT * 40, encoding="utf-8")
    out = tmp_path / "out.gguf"
    command = [sys.executable, "-m", "trinity", *given, "-f", str(text), "-o", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "PPL" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stderr.read()
        assert process.wait(60) == INTERRUPTED
    assert "--resume continues" in rest
    done = read_imatrix(out)
    assert done.position is not None
    assert 0 < done.chunk_count == done.position.next_chunk
    result = subprocess.run(
        [*command, "--resume", "--no-ppl"], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    found = read_imatrix(out)
    assert found.chunk_count == found.position.next_chunk > done.chunk_count  # type: ignore[union-attr]


def test_ctrl_c_before_the_first_chunk(
    run: Run, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **options: Any) -> None:
        options["cancel"].set()
        raise InputError("cancelled before the first chunk was computed")

    monkeypatch.setattr("trinity.tools.imatrix.gather_imatrix", interrupted)
    result = run(*given, "-o", str(tmp_path / "out.gguf"))
    assert result.exit_code == INTERRUPTED
    assert "before the first chunk" in result.stderr


def test_default_chunk_is_the_librarys() -> None:
    assert CHUNK == DEFAULT_CHUNK_SIZE


def test_a_file_that_exists_is_kept_without_force(
    run: Run, given: list[str], tmp_path: Path
) -> None:
    """This also applies when matrices are added; the error comes before the model is loaded."""
    out = tmp_path / "out.gguf"
    run(*given, "-o", str(out), "--chunks", "2")
    before = out.read_bytes()
    for arguments in ((*given, "-m", "no.gguf"), ("imatrix", "--in-file", str(out))):
        result = run(*arguments, "-o", str(out))
        assert result.exit_code == 1
        assert f"{out}: the file exists already" in result.stderr
    assert out.read_bytes() == before
    assert run("imatrix", "--in-file", str(out), "-o", str(out), "--force").exit_code == 0
