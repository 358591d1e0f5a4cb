"""bench, warmup and selftest: the shells around what the kernels' package does."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import trinity_kernels
from tests.cli.conftest import Run
from tests.tiny_models import write_tiny_model
from tests.toy_model import ToyEngine


@dataclass
class Check:
    level: str
    kernel: str
    passed: bool
    error: float


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the self-test of the kernels will answer."""
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
    checks.append(Check("avx2", "rmsnorm", False, 3.0))
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
    assert [t["test"] for t in found["tests"]] == ["pp16", "tg4"]
    assert all(len(t["tokens_per_second_rounds"]) == 2 for t in found["tests"])
    assert found["read_bandwidth_bytes_per_second"] == 1e9
    assert {"cpu", "system"} <= found["machine"].keys()
    assert {"python", "numba", "trinity-llm"} <= found["versions"].keys()
    assert found["parameters"] > 0
    options = engine.loads[0][1]
    assert (options["context_length"], options["threads"]) == (16, 2)
