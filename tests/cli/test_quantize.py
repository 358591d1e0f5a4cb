"""`trinity quantize`: output paths, its table, exit status and progress."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model
from trinity.cli.quantize import TYPES as DOCUMENTED
from trinity.providers import open_weights
from trinity.quantization import ALIASES, MIXES, rows


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.gguf"
    write_tiny_model(path)
    return path


def test_it_writes_the_file(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    done = run("quantize", str(source), str(out), "q8_0")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == f"quantizing {source}: 0%"
    assert lines[-2] == f"quantizing {source}: 100%"
    sizes = f"{source.stat().st_size / 1e6:.1f} MB became {out.stat().st_size / 1e6:.1f} MB"
    assert lines[-1].startswith(f"{out}: Q8_0, llama, 20 tensors; {sizes}, ")
    assert lines[-1].endswith("bits per weight")
    assert len(lines) < 15
    provider = open_weights(out)
    assert provider.tensor("blk.1.ffn_up.weight").type == "Q8_0"


def test_a_dry_run_shows_a_table(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    done = run("quantize", str(source), str(out), "Q4_0", "--dry-run", "--threads", "1")
    assert done.exit_code == 0, done.stderr
    assert os.listdir(tmp_path) == ["source.gguf"]
    rows_shown = [re.split(r"  +", line.strip()) for line in done.stdout.splitlines()]
    assert rows_shown[0] == ["tensor", "shape", "from", "to", "bytes"]
    assert ["blk.0.ffn_up.weight", "128 x 64", "F32", "Q4_0", "4,608"] in rows_shown
    assert ["blk.0.attn_norm.weight", "64", "F32", "F32", "256"] in rows_shown
    assert ["Q4_0", "14", "41,472"] in rows_shown
    assert "would become" in done.stdout.splitlines()[-1]
    assert "note: token_embd.weight: rows of 64 weights" in done.stderr


def test_what_does_not_fit_is_said_per_tensor(run: Run, source: Path, tmp_path: Path) -> None:
    done = run("quantize", str(source), str(tmp_path / "out.gguf"), "Q4_0")
    rows = "note: token_embd.weight: rows of 64 weights are not a multiple of Q6_K's block"
    assert f"{rows}; it gets Q8_0" in done.stderr.splitlines()


def test_options_reach_the_quantizer(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    options = [
        "--token-embedding-type", "f16", "--tensor-type", r"blk\.0\..*_q=q8_0",
        "--tensor-type", "attn_q=Q5_1", "--threads", "2", "--pure",
    ]  # fmt: skip
    done = run("quantize", str(source), str(out), "Q4_0", *options)
    assert done.exit_code == 0, done.stderr
    provider = open_weights(out)
    names = ["token_embd", "blk.0.attn_q", "blk.1.attn_q", "blk.1.attn_k"]
    types = [provider.tensor(f"{name}.weight").type for name in names]
    assert types == ["F16", "Q8_0", "Q5_1", "Q4_0"]
    again = tmp_path / "again.gguf"
    assert "--allow-requantize" in run("quantize", str(out), str(again), "Q4_1").stderr
    done = run("quantize", str(out), str(again), "Q4_1", "--allow-requantize")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{source}", "{out}"], 2, "TYPE"),
        (["{source}"], 2, "OUT"),
        (["{source}", "{out}", "Q4_K_X"], 2, "type is 'Q4_K_X'"),
        (["{source}", "{source}", "Q4_0", "--force"], 1, "this is the source model"),
        (["{out}", "{source}", "Q4_0"], 1, "there is no such file"),
        (["{source}", "{out}", "Q4_0", "--tensor-type", "attn_v"], 2, "give PATTERN=TYPE"),
        (["{source}", "{out}", "Q4_0", "--tensor-type", "=Q8_0"], 2, "give PATTERN=TYPE"),
        (["{source}", "{out}", "Q4_0", "--tensor-type", "x=Q9_0"], 2, "--tensor-type is 'Q9_0'"),
        (["{source}", "{out}", "Q4_0", "--output-tensor-type", "x"], 2, "--output-tensor-type is"),
        (["{source}", "{out}", "Q4_0", "--tensor-type", "x=Q8_0"], 1, "no quantized tensor"),
        (["{source}", "{out}", "Q4_0", "--imatrix", "{out}.imatrix"], 1, "{out}.imatrix"),
        (["{source}", "{out}", "Q4_0", "--threads", "-1"], 2, "--threads is -1"),
    ],
)
def test_wrong_usage(
    run: Run, arguments: list[str], code: int, message: str, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.gguf"
    done = run("quantize", *(a.format(source=source, out=out) for a in arguments))
    assert done.exit_code == code
    assert message.format(out=out) in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["source.gguf"]


def test_a_file_that_exists_is_kept_without_force(run: Run, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    done = run("quantize", str(source), str(out), "Q4_0")
    assert done.exit_code == 1
    assert "--force" in done.stderr
    assert out.read_text() == "precious"
    assert run("quantize", str(source), str(out), "Q4_0", "--force").exit_code == 0
    assert len(open_weights(out).tensor_names()) == 20


def test_ctrl_c_leaves_nothing(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rows.quantize_rows
    calls = []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(rows, "quantize_rows", interrupted)
    done = run("quantize", str(source), str(tmp_path / "out.gguf"), "Q4_0")
    assert done.exit_code == 130
    assert os.listdir(tmp_path) == ["source.gguf"]


def test_help_names_every_type(run: Run) -> None:
    assert set(re.findall(r"[A-Z0-9_]+[0-9]\w*", DOCUMENTED)) == set(MIXES)
    assert all(name.rpartition("_")[0] in ALIASES for name in ALIASES.values())
    assert "--allow-requantize" in run("quantize", "--help").stdout
