"""`trinity bench`, `warmup` and `selftest`: options and output."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import trinity_kernels
from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model
from tests.toy_model import ToyEngine
from trinity_kernels import bandwidth


@dataclass
class Check:
    level: str
    kernel: str
    passed: bool
    error: float


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """Replaces the results of the self-test."""
    results = [Check("avx2", "matmul", True, 1.5e-7)]

    def run(levels: list[str] | None, progress: Callable[[str], None]) -> list[Check]:
        progress(f"levels {levels}")
        return results

    module = types.ModuleType("trinity_kernels.selftest")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trinity_kernels.selftest", module)
    monkeypatch.setattr(trinity_kernels, "selftest", module, raising=False)
    return results


def test_selftest_passes(run: Run, checks: list[Check]) -> None:
    result = run("selftest", "--isa", "avx2")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "level  kernel  passed  error",
        "avx2   matmul  yes     1.5e-07",
        "1 checks, 0 failed",
    ]
    assert "levels ['avx2']" in result.stderr


def test_selftest_fails(run: Run, checks: list[Check]) -> None:
    checks.append(Check("avx2", "norm", False, 3.0))
    result = run("selftest")
    assert result.exit_code == 1
    assert "NO" in result.stdout
    assert "levels None" in result.stderr


def test_selftest_that_checks_nothing_fails(run: Run, checks: list[Check]) -> None:
    checks.clear()
    assert run("selftest").exit_code == 1


def test_warmup(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warmup(isa: str | None, progress: Callable[[str], None]) -> None:
        progress(f"compiling for {isa}")

    monkeypatch.setattr(trinity_kernels, "warmup", warmup, raising=False)
    result = run("warmup", "--isa", "portable")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "compiling for portable\nall kernels are compiled\n"


def test_warmup_of_a_model(run: Run, engine: ToyEngine) -> None:
    result = run("warmup", "-m", "toy.gguf", "--kv-type", "f32")
    assert (result.exit_code, result.stdout) == (0, "")
    assert engine.loads == [("toy.gguf", {"kv_type": "f32"})]
    assert [len(step) for step in engine.evaluated] == [1, 1]
    result = run("warmup", "--kv-type", "f32")
    assert result.exit_code == 2
    assert "--kv-type needs --model" in result.stderr


@pytest.fixture
def model(tmp_path: Path, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file for bench to open; the engine is the toy."""
    bandwidth = types.ModuleType("trinity_kernels.bandwidth")
    bandwidth.read_bandwidth = lambda threads: 1e9  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trinity_kernels.bandwidth", bandwidth)
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    return str(path)


def bench(run: Run, model: str, *arguments: str) -> Any:
    return run("bench", "-m", model, "-p", "16", "-n", "4", "-t", "2", "-r", "2", *arguments)


def test_bench_table(run: Run, model: str) -> None:
    result = bench(run, model)
    assert result.exit_code == 0, result.stderr
    for expected in ("| model |", "pp16", "tg4", "±", "GB/s"):
        assert expected in result.stdout
    assert "round 2 of 2" in result.stderr


def test_bench_json(run: Run, model: str, engine: ToyEngine) -> None:
    found = json.loads(bench(run, model, "--json").stdout)
    (found_model,) = found["models"]
    (level,) = found_model["levels"]
    assert [t["test"] for t in level["tests"]] == ["pp16", "tg4"]
    assert all(len(t["tokens_per_second_rounds"]) == 2 for t in level["tests"])
    assert level["read_bandwidth_bytes_per_second"] == 1e9
    assert {"cpu", "system"} <= found["machine"].keys()
    assert {"python", "numba", "trinity-llm"} <= found["versions"].keys()
    assert found_model["parameters"] > 0
    assert (found_model["model"], found_model["path"], found_model["type"]) == (model, model, "F32")
    assert found_model["bytes"] == Path(model).stat().st_size > found_model["tensor_bytes"]
    options = engine.loads[0][1]
    assert (options["context_length"], options["threads"]) == (16, 2)


def test_bench_levels_and_depths(run: Run, model: str, engine: ToyEngine) -> None:
    """One engine runs after the other; each has room for the deepest test."""
    arguments = ("--isa", "avx2", "--isa", "portable", "-d", "0", "-d", "30", "--json")
    found = json.loads(bench(run, model, *arguments).stdout)
    assert [options["isa"] for _, options in engine.loads] == ["avx2", "portable"]
    assert {options["context_length"] for _, options in engine.loads} == {46}
    for level in found["models"][0]["levels"]:
        assert [t["test"] for t in level["tests"]] == ["pp16", "tg4", "pp16 @ d30", "tg4 @ d30"]
        assert level["load_seconds"] >= 0


@pytest.mark.full
def test_bench_of_a_whole_model(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bandwidth of 1 GB would be the suite's largest use of memory.
    less = partial(bandwidth.read_bandwidth, nbytes=1 << 26)
    monkeypatch.setattr(bandwidth, "read_bandwidth", less)
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path)
    result = bench(run, str(path), "-b", "2", "-d", "8", "--profile", "-r", "1")
    assert result.exit_code == 0, result.stderr
    for expected in ("pp16 @ d8", "tg4 b2 @ d8", "| matmul", "a step of pp16"):
        assert expected in result.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ("-b", "17"),
        ("-d", "-1"),
        ("-d", "64", "-c", "64"),
        ("-p", "1,x"),
        ("-n", ""),
        ("-r", "0"),
        ("--isa", "mmx"),
        ("-p", "16,2,"),
    ],
)
def test_bench_refuses_before_loading(
    run: Run, model: str, engine: ToyEngine, wrong: tuple[str, str]
) -> None:
    result = bench(run, model, *wrong)
    assert result.exit_code == 2
    assert engine.loads == []


def test_bench_of_several_models_and_sizes(
    run: Run, model: str, engine: ToyEngine, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    write_tiny_model(other, type="Q4_K", metadata={"general.file_type": 15}, hidden_size=256)
    arguments = ("-m", model, "-m", str(other), "-p", "8,16", "-n", "2", "-n", "3", "-r", "1")
    result = run("bench", *arguments)
    assert result.exit_code == 0, result.stderr
    rows = [line.split("|")[1:-1] for line in result.stdout.splitlines() if line[:1] == "|"]
    assert [cell.strip() for cell in rows[0]] == [
        "model", "type", "size", "params", "isa", "threads", "test", "t/s"
    ]  # fmt: skip
    tests = [(row[1].strip(), row[6].strip()) for row in rows[2:]]
    assert tests == [
        (type, test) for type in ("F32", "Q4_K_M") for test in ("pp8", "pp16", "tg2", "tg3")
    ]
    assert all(row[2].strip().endswith(" MiB") for row in rows[2:])
    assert "Q4_K_M: tg2 read" in result.stdout
    assert [path for path, _ in engine.loads] == [model, str(other)]
    found = json.loads(run("bench", *arguments, "--json").stdout)
    assert [one["model"] for one in found["models"]] == [model, str(other)]
    assert all(len(one["levels"][0]["tests"]) == 4 for one in found["models"])


def test_bench_opens_all_files_before_it_measures(run: Run, model: str, engine: ToyEngine) -> None:
    result = bench(run, model, "-m", "missing.gguf")
    assert result.exit_code == 1
    assert "missing.gguf" in result.stderr
    assert engine.loads == []
