"""The selection of cases by `make test`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import left_out
from tests.matrix import KINDS, MOST
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import READERS

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from tests.conftest import pytest_pycollect_makeitem
"""
TESTS = """
import pytest
from tests.matrix import some
from trinity_kernels.isa import available_levels

@pytest.fixture(params=["fast", "slow"])
def level(request): ...

@pytest.mark.parametrize("isa", available_levels())
def test_levels(isa): ...

@pytest.mark.few(9)
@pytest.mark.parametrize("tag", ["a", "b", "c"])
@pytest.mark.parametrize(("x", "y"), [(1, 1), (1, 2)])
def test_crossed(level, tag, x, y): ...

@pytest.mark.parametrize("tag", some("abc", "b"))
def test_some(level, tag): ...

@pytest.mark.few(9)
@pytest.mark.parametrize(("x", "y"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_rows(x, y): ...

@pytest.mark.few(2)
@pytest.mark.parametrize("tag", "abcdef")
def test_few(level, tag): ...

@pytest.mark.parametrize("number", range(60))
def test_many(number): ...

@pytest.mark.full
def test_left(): ...
"""


def collected(folder: Path, *arguments: str) -> list[str]:
    """Names of the tests that pytest would run in a folder."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-W", "ignore", *arguments, "--rootdir", str(folder), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.full
def test_each_value_occurs(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_cases.py").write_text(TESTS)
    assert collected(tmp_path, "-m", "not full") == [
        f"test_levels[{available_levels()[0]}]",
        "test_crossed[fast-1-1-a]", "test_crossed[fast-1-1-c]", "test_crossed[slow-1-2-b]",
        "test_some[fast-b]", "test_some[slow-b]",
        *(f"test_rows[{row}]" for row in ("1-1", "1-2", "2-1", "2-2")),
        "test_few[fast-a]", "test_few[slow-b]",
        *(f"test_many[{number}]" for number in range(0, 60, 60 // MOST)),
    ]  # fmt: skip


@pytest.mark.few(7)
@pytest.mark.parametrize(
    ("expression", "excluded"),
    [
        ("", set()),
        ("full", set()),
        ("not full", {"full"}),
        ("full and not crossed and not real", {"crossed", "real"}),
        ("not full or real", set()),
        ("real or full and not crossed", set()),
        ("not (full and real)", set()),
    ],
)
def test_marks_that_an_expression_excludes(expression: str, excluded: set[str]) -> None:
    config: Any = SimpleNamespace(getoption=lambda name: expression)
    assert left_out(config) == excluded


def test_kinds_have_every_form_and_reader() -> None:
    assert {FORMS[name] for name in KINDS} == set(FORMS.values())
    assert {type(READERS[name]) for name in KINDS} == {type(reader) for reader in READERS.values()}
