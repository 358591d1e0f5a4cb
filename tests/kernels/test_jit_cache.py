"""Compiled kernels on disk: loaded by the next process, renewed when a source changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kernels.process import KERNELS, run_python

COMPILE = """
from trinity_kernels.ops.activation import gated
fresh = []
assert gated.address("portable", "relu2", lambda: fresh.append(1)) != 0
assert gated.address("portable", "relu2", lambda: fresh.append(2)) != 0
print(len(fresh))
"""
FOLDER = "from trinity_kernels._jit import cache_folder; print(cache_folder())"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    copy = tmp_path / "installed"
    shutil.copytree(KERNELS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_second_process_compiles_nothing(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "1"
    assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "0"


def test_a_changed_source_has_a_folder_of_its_own(tmp_path: Path, kernels: Path) -> None:
    cache = str(tmp_path / "cache")
    before = run_python(FOLDER, kernels=kernels, TRINITY_CACHE_DIR=cache)
    source = kernels / "trinity_kernels" / "ops" / "exponential.py"
    text = source.read_text(encoding="utf-8")
    source.write_text(text + "# one line more\n", encoding="utf-8")
    assert run_python(FOLDER, kernels=kernels, TRINITY_CACHE_DIR=cache) != before
    source.write_text(text, encoding="utf-8")  # another time of change, the same content
    assert run_python(FOLDER, kernels=kernels, TRINITY_CACHE_DIR=cache) == before


def test_the_installation_is_not_written_to(tmp_path: Path, kernels: Path) -> None:
    before = sorted(kernels.rglob("*"))
    cache = tmp_path / "user"
    settings = {"XDG_CACHE_HOME": str(cache), "HOME": str(tmp_path), "LOCALAPPDATA": str(cache)}
    assert run_python(COMPILE, kernels=kernels, **settings).strip() == "1"
    assert run_python(COMPILE, kernels=kernels, **settings).strip() == "0"
    assert sorted(kernels.rglob("*")) == before


def test_without_a_folder_every_process_compiles(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    cache = str(blocked / "cache")
    assert run_python(FOLDER, TRINITY_CACHE_DIR=cache).strip() == "None"
    for _ in range(2):
        assert run_python(COMPILE, TRINITY_CACHE_DIR=cache).strip() == "1"


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("kept", [0, 60])
def test_truncated_files_are_compiled_anew(tmp_path: Path, pattern: str, kept: int) -> None:
    cache = tmp_path / "cache"
    run_python(COMPILE, TRINITY_CACHE_DIR=str(cache))
    damaged = [path for path in cache.rglob(pattern) if "gated" in path.name]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:kept])
    assert run_python(COMPILE, TRINITY_CACHE_DIR=str(cache)).strip() == "1"
    assert run_python(COMPILE, TRINITY_CACHE_DIR=str(cache)).strip() == "0"


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
def test_truncated_files_of_a_team_are_compiled_anew(tmp_path: Path, pattern: str) -> None:
    cache = tmp_path / "cache"
    code = "from trinity_kernels.team import Team; Team(2).close(); print('ran')"
    run_python(code, TRINITY_CACHE_DIR=str(cache))
    damaged = [path for path in cache.rglob(pattern) if "team" in path.name]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:50])
    assert run_python(code, TRINITY_CACHE_DIR=str(cache)).strip() == "ran"
