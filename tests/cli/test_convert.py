"""`trinity convert`: output paths, exit status and progress."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.models.adapter_files import peft_directory
from tests.tiny_models import write_tiny_model
from tests.tools.golden_models import edit_json, model_directory
from trinity.cli.convert import OUTTYPES as DOCUMENTED
from trinity.cli.progress_bar import bar
from trinity.providers import open_weights
from trinity.tools.convert import OUTTYPES, conversion


def test_it_writes_the_file(run: Run, tmp_path: Path) -> None:
    source, out = model_directory("bitnet-packed", tmp_path), tmp_path / "model.gguf"
    done = run("convert", str(source), str(out), "--outtype", "i2_s")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == f"converting {source}: 0%"
    assert lines[-2] == f"converting {source}: 100%"
    assert lines[-1] == f"{out}: bitnet-b1.58, 24 tensors, 0.3 MB"
    assert len(lines) < 15
    assert len(open_weights(out).tensor_names()) == 24


def test_outtype_may_be_in_capitals(run: Run, tmp_path: Path) -> None:
    source = model_directory("bitnet-packed", tmp_path)
    assert (
        run("convert", str(source), str(tmp_path / "a.gguf"), "--outtype", "TQ1_0").exit_code == 0
    )


def test_remarks_are_shown(run: Run, tmp_path: Path) -> None:
    source = model_directory("bitnet-packed", tmp_path)
    edit_json(source / "config.json", quantization_config={"quant_method": "bitnet"})
    arguments = ["convert", str(source), str(tmp_path / "a.gguf"), "--outtype", "i2_s"]
    done = run(*arguments)
    assert "note: the layers' scales look inverted" in done.stderr
    done = run(*arguments, "--weight-scale", "multiply")
    assert "note" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{source}", "--outtype", "i2_s"], 2, "OUT"),
        (["{source}", "{out}", "--outtype", "q4_9"], 2, "--type: type is 'q4_9'"),
        (["{out}", "{out}", "--outtype", "i2_s"], 1, "there is no such file or model"),
        (["{source}", "{out}", "--outtype", "i2_s", "--weight-scale", "x"], 2, "--weight-scale"),
        (
            ["{source}", "{out}", "--type", "Q4_K_M", "--weight-scale", "divide"],
            2,
            "--weight-scale",
        ),
    ],
)
def test_wrong_usage(
    run: Run, arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    source, out = model_directory("bitnet-packed", tmp_path), tmp_path / "model.gguf"
    done = run("convert", *(a.format(source=source, out=out) for a in arguments))
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_ctrl_c_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model_directory("bitnet-packed", tmp_path)
    real = conversion.tensor_data

    def interrupted(planned, *rest):  # type: ignore[no-untyped-def]
        def chunks():  # type: ignore[no-untyped-def]
            if planned.name == "blk.1.ffn_up.weight":
                raise KeyboardInterrupt
            yield from real(planned, *rest)()

        return chunks

    monkeypatch.setattr(conversion, "tensor_data", interrupted)
    done = run("convert", str(source), str(tmp_path / "a.gguf"), "--outtype", "i2_s")
    assert done.exit_code == 130
    assert os.listdir(tmp_path) == [source.name]


def test_help_names_every_type() -> None:
    assert tuple(OUTTYPES) == DOCUMENTED


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with bar("converting [x]") as show:
        show(0, 100, "blk.0.attn_q.weight")
        show(100, 100, "")
    assert "converting [x]" in terminal.getvalue()
    assert "100/100 bytes" in terminal.getvalue()


def test_a_file_that_exists_is_kept_without_force(run: Run, tmp_path: Path) -> None:
    source, out = model_directory("bitnet-packed", tmp_path), tmp_path / "model.gguf"
    out.write_text("precious")
    arguments = ["convert", str(source), str(out), "--outtype", "i2_s"]
    done = run(*arguments)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith("--force to replace it")
    assert "%" not in done.stderr  # before any work
    assert out.read_text() == "precious"
    assert run(*arguments, "--force").exit_code == 0
    assert len(open_weights(out).tensor_names()) == 24


def test_adapter(run: Run, tmp_path: Path) -> None:
    model, out = tmp_path / "model.gguf", tmp_path / "adapter.gguf"
    write_tiny_model(model, hidden_size=64)
    module = "model.layers.0.self_attn.q_proj"
    ones = np.ones((4, 64), np.float32)
    tensors = {f"{module}.lora_A.weight": ones, f"{module}.lora_B.weight": ones.T.copy()}
    source = str(peft_directory(tmp_path / "adapter", tensors))
    done = run("convert", source, str(out), "--lora", str(model))
    assert (done.exit_code, done.stderr) == (0, f"{out}: llama, 2 tensors, 0.0 MB\n")
    done = run("convert", source, str(out), "--lora", str(model))
    assert (done.exit_code, "--force" in done.stderr) == (1, True)
    done = run("convert", source, str(out), "--lora", str(model), "--outtype", "f16")
    assert done.exit_code == 2
    assert "--lora keeps the adapter's types" in done.stderr


@pytest.mark.parametrize(("name", "type"), [("bitnet-packed", "i2_s"), ("llama-grouped", "bf16")])
def test_without_a_type_values_are_kept(run: Run, tmp_path: Path, name: str, type: str) -> None:
    source, out, named = model_directory(name, tmp_path), tmp_path / "a.gguf", tmp_path / "b.gguf"
    done = run("convert", str(source), str(out))
    assert done.exit_code == 0, done.stderr
    assert f"note: no type was given: the weights become {type}, which keeps" in done.stderr
    assert run("convert", str(source), str(named), "--type", type).exit_code == 0
    assert out.read_bytes() == named.read_bytes()


def test_mixes_are_quantized_in_one_step(run: Run, tmp_path: Path) -> None:
    """The file equals that of conversion followed by quantization."""
    source = model_directory("llama-grouped", tmp_path)
    direct, between, last = (tmp_path / f"{name}.gguf" for name in "abc")
    done = run("convert", str(source), str(direct), "--type", "q4_k_m")
    assert done.exit_code == 0, done.stderr
    assert f"{direct}: Q4_K_M, llama, " in done.stderr
    assert run("convert", str(source), str(between), "--type", "bf16").exit_code == 0
    assert run("quantize", str(between), str(last), "Q4_K_M").exit_code == 0
    assert "no difference" in run("inspect", str(last), "--diff", str(direct)).stdout
    assert run("convert", str(source), str(direct), "--type", "q4_k_m").exit_code == 1
    assert run("convert", str(source), str(direct), "--type", "q4_k_m", "--force").exit_code == 0
