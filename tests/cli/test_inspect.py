from __future__ import annotations

import json
import struct
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.expert_models import EXPERTS, PER_TOKEN, write_expert_model
from tests.models.adapter_files import peft_directory
from tests.tiny_models import write_tiny_model
from trinity.cli.inspect import plain
from trinity.cli.inspect_tables import print_rows, printable
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.imatrix import Imatrix, ImatrixEntry, write_imatrix


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspect") / "tiny.gguf"
    write_tiny_model(path)
    return path


def test_json(run: Run, model: Path) -> None:
    result = run("inspect", str(model), "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["model"], found["path"]) == (str(model), str(model))
    assert (found["kind"], found["summary"]["type"]) == ("model", "F32")
    assert found["bytes"] == model.stat().st_size
    assert found["header"]["version"] == 3
    assert found["config"]["num_layers"] == 2
    assert found["refused"] is None
    assert found["metadata"]["general.architecture"] == "llama"
    assert found["metadata"]["tokenizer.ggml.tokens"]["array"] == "array[string]"
    embedding = next(t for t in found["tensors"] if t["name"] == "token_embd.weight")
    assert embedding["bytes"] == 4 * int(np.prod(embedding["shape"]))
    assert found["tensor_bytes"] == sum(t["bytes"] for t in found["tensors"])


def test_tables_on_a_pipe(run: Run, model: Path) -> None:
    result = run("inspect", str(model), "--tensors")
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    row = next(line for line in result.stdout.splitlines() if "token_embd.weight" in line)
    assert "F32" in row
    assert " x " in row
    for expected in ("hidden_size", "general.architecture", "array[string], ", "parameters in"):
        assert expected in result.stdout


def test_experts(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "experts.gguf"
    write_expert_model(path)
    found = json.loads(run("inspect", str(path), "--json").stdout)
    assert found["config"]["experts"]["num_experts"] == EXPERTS
    experts = sum(int(np.prod(t["shape"])) for t in found["tensors"] if "_exps" in t["name"])
    left = experts - experts * PER_TOKEN // EXPERTS
    assert found["parameters"] - found["active_parameters"] == left
    text = run("inspect", str(path)).stdout
    assert f"{found['active_parameters']:,} used per token" in " ".join(text.split())
    assert run("inspect", str(path), "--verify").exit_code == 0


def test_vocabulary_without_configuration_still_shows(run: Run, shared_data: Path) -> None:
    path = shared_data / "vocab" / "ggml-vocab-llama-spm.gguf"
    assert run("inspect", str(path)).exit_code == 0
    assert json.loads(run("inspect", str(path), "--json").stdout)["tensors"] == []


def test_a_model_that_trinity_lacks_shows_and_says_why(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "llama5")
        writer.add_tensor("blk.0.unread_weight_1", (4,), "F32", np.ones(4, np.float32))
    found = json.loads(run("inspect", str(path), "--json").stdout)
    assert "architecture 'llama5' is not supported; near in name: llama" in found["refused"]
    assert "no family of trinity reads 'unread_weight_1'" in found["refused"]
    result = run("inspect", str(path), "--tensors")
    assert result.exit_code == 0
    assert found["refused"] in result.stdout
    assert "blk.0.unread_weight_1" in result.stdout


def test_not_a_model_is_1(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"hello world, this is no model at all")
    result = run("inspect", str(path))
    assert result.exit_code == 1
    assert str(path) in result.stderr


def test_a_file_cannot_control_the_terminal() -> None:
    assert "\x1b" not in printable("\x1b[31mred")
    assert printable("a\nb") == r"a\nb"
    assert printable("plain") == "plain"
    assert len(printable("x" * 1000)) < 120


def test_json_has_no_nan() -> None:
    assert plain(np.array([1.0, np.nan])) == [1.0, "nan"]


def test_types_are_summed_up(run: Run, model: Path) -> None:
    found = json.loads(run("inspect", str(model), "--json").stdout)
    (row,) = found["types"].values()
    assert row["tensors"] == len(found["tensors"])
    assert row["bytes"] == found["tensor_bytes"]
    assert row["bits_per_weight"] == found["bits_per_weight"] == 32


def test_diff_ends_as_diff_does(run: Run, model: Path, tmp_path: Path) -> None:
    same = run("inspect", str(model), "--diff", str(model))
    assert (same.exit_code, "no difference" in same.stdout) == (0, True)
    other = tmp_path / "other.gguf"
    write_tiny_model(other, seed=1)
    result = run("inspect", str(model), "--diff", str(other))
    assert result.exit_code == 1
    assert "token_embd.weight" in result.stdout
    found = json.loads(run("inspect", str(model), "--diff", str(other), "--json").stdout)
    assert {t["name"] for t in found["tensors_changed"]} >= {"token_embd.weight"}


def test_verify(run: Run, model: Path, tmp_path: Path) -> None:
    result = run("inspect", str(model), "--verify")
    assert result.exit_code == 0, result.stdout
    assert "nothing is wrong" in result.stdout
    damaged = tmp_path / "damaged.gguf"
    data = bytearray(model.read_bytes())
    data[-4:] = np.array([np.nan], "<f4").tobytes()
    damaged.write_bytes(data)
    result = run("inspect", str(damaged), "--verify")
    assert result.exit_code == 1
    assert "1 finding" in result.stdout
    found = json.loads(run("inspect", str(damaged), "--verify", "--json").stdout)
    assert found["findings"][0]["expected"] == "finite numbers"


def test_two_questions_at_once(run: Run, model: Path) -> None:
    assert run("inspect", str(model), "--verify", "--diff", str(model)).exit_code == 2


def test_findings_cannot_control_the_terminal_and_are_shown_whole(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    names = [f"\x1b[2J{letter * 55}" for letter in "ab"]
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "llama")
        for name in names:
            writer.add_tensor(name, (2, 32), "F32", np.full((2, 32), np.nan, np.float32))
    result = run("inspect", str(path), "--verify")
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    for line in result.stdout.splitlines():
        if line.startswith("finding"):
            assert "expected finite numbers" in line
        if line.startswith("note"):
            assert all(letter * 55 in line for letter in "ab")


def test_paths_are_shown_whole(run: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / ("long" * 40 + ".gguf")
    path.write_bytes(model.read_bytes())
    assert str(path) in run("inspect", str(path)).stdout


def test_kernels_without_a_file(run: Run) -> None:
    result = run("inspect", "--kernels", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["level"] in found["available"]
    assert {span["level"] for span in found["kernels"]} >= set(found["available"])
    alone = [s for s in found["kernels"] if s["level"] == "portable"]
    assert [s["tokens"] for s in alone] == [[1, None]]
    assert "Q4_0" in alone[0]["types"]
    assert "Q8_1" not in alone[0]["types"]


def test_kernels_of_a_model(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type="Q4_0")
    result = run("inspect", str(path), "--kernels", "--json")
    assert result.exit_code == 0, result.stderr
    types = {name for span in json.loads(result.stdout)["kernels"] for name in span["types"]}
    assert "Q4_0" in types
    assert "Q5_0" not in types
    shown = run("inspect", str(path), "--kernels").stdout
    assert "panels *" in shown
    assert "Q4_0" in shown


@pytest.mark.parametrize("arguments", [(), ("--verify",), ("--kernels", "--verify")])
def test_kernels_are_the_only_question_without_a_file(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("inspect", *arguments).exit_code == 2


def test_a_summary_comes_first_and_tensors_when_they_are_asked_for(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type="Q4_K", metadata={"general.file_type": 15})
    lines = run("inspect", str(path)).stdout.splitlines()
    assert lines[0] == str(path)
    summary = dict(line.split(None, 1) for line in lines[1 : lines.index("file")])
    assert (summary["kind"], summary["family"], summary["type"]) == ("model", "llama", "Q4_K_M")
    assert summary["runs"] == "yes"
    assert not any("blk.0.attn_q.weight" in line for line in lines)
    count = len(json.loads(run("inspect", str(path), "--json").stdout)["tensors"])
    assert f"{count} tensors; --tensors lists them" in lines
    listed = run("inspect", str(path), "--tensors").stdout.splitlines()
    assert any(line.split()[:1] == ["blk.0.attn_q.weight"] for line in listed)


def kind_of(run: Run, path: Path) -> tuple[str, dict[str, object]]:
    """Return the kind of a file, which both output formats must agree on."""
    result = run("inspect", str(path), "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["bytes"] > 0
    text = run("inspect", str(path)).stdout
    assert text.splitlines()[0] == str(path)
    assert found["kind"] in text.splitlines()[1]
    assert "not run by trinity" not in text
    assert "none:" not in text
    return found["kind"], found["summary"]


def test_importance_matrices(run: Run, tmp_path: Path) -> None:
    entries = {
        "blk.0.attn_q.weight": ImatrixEntry(np.ones((1, 4), np.float32), np.array([1024])),
    }
    path, old = tmp_path / "imatrix.gguf", tmp_path / "imatrix.dat"
    write_imatrix(path, Imatrix(entries, 512, ("wiki.txt",)))
    kind, facts = kind_of(run, path)
    assert kind == "importance matrix"
    assert facts == {"weights": 1, "chunks": 2, "tokens_per_chunk": 512, "texts": ["wiki.txt"]}
    name = b"blk.0.attn_q.weight"
    old.write_bytes(
        struct.pack("<ii", 1, len(name))
        + name
        + struct.pack("<ii4f", 2, 4, *[1.0] * 4)
        + struct.pack("<ii", 2, 8)
        + b"wiki.txt"
    )
    kind, facts = kind_of(run, old)
    assert (kind, facts["weights"], facts["texts"]) == ("importance matrix", 1, ["wiki.txt"])


@pytest.mark.full
def test_adapters(run: Run, tmp_path: Path) -> None:
    model, out = tmp_path / "model.gguf", tmp_path / "adapter.gguf"
    write_tiny_model(model, hidden_size=64)
    module = "model.layers.0.self_attn.q_proj"
    ones = np.ones((4, 64), np.float32)
    tensors = {f"{module}.lora_A.weight": ones, f"{module}.lora_B.weight": ones.T.copy()}
    source = peft_directory(tmp_path / "adapter", tensors)
    kind, facts = kind_of(run, source)
    assert (kind, facts["format"]) == ("LoRA adapter", "PEFT, LORA")
    assert run("convert", str(source), str(out), "--lora", str(model)).exit_code == 0
    kind, facts = kind_of(run, out)
    assert (kind, facts["format"], facts["family"]) == ("LoRA adapter", "lora", "llama")
    assert (facts["weights"], facts["rank"]) == (1, 4)


def test_what_is_neither_is_refused_as_before(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.dat").write_bytes(b"hello world, this is no matrix at all")
    result = run("inspect", str(tmp_path / "x.dat"))
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize("width", [20, 60])
def test_a_narrow_terminal_breaks_no_words(width: int) -> None:
    console = pytest.importorskip("rich.console").Console(file=StringIO(), width=width)
    print_rows(console, ("type", "bits per weight", "memory"), [("Q4_K_M", "4.85", "9.62 GB")])
    words = console.file.getvalue().split()
    assert words.count("weight") == words.count("memory") == words.count("Q4_K_M") == 1
