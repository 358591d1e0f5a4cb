"""The level of a kernel: the best one that passed its check on this machine."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from trinity.errors import KernelError
from trinity.runtime import kernel_choice
from trinity.runtime.kernel_choice import KernelChoice
from trinity_kernels import _jit, loaded_code, selftest
from trinity_kernels._jit import Kernel
from trinity_kernels.isa import BASES, available_levels
from trinity_kernels.ops.activation import gated
from trinity_kernels.ops.norm import norm

LEVELS = [level for level in available_levels() if level not in BASES]  # with code of their own
pytestmark = pytest.mark.skipif(len(LEVELS) < 2, reason="this CPU has the portable level alone")


class Checks:
    """Stands in for the self-test: fails the levels in ``wrong``, counts what is asked."""

    def __init__(self) -> None:
        self.wrong: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, name: str, level: str, tag: str) -> str | None:
        self.asked.append((name, level, tag))
        return "2 instead of 1" if level in self.wrong else None


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    found = Checks()
    monkeypatch.setattr(selftest, "check", found)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where outcomes are kept; nothing is known at first."""
    monkeypatch.setattr(kernel_choice, "cache_folder", lambda: tmp_path)
    return tmp_path


def test_a_kernel_is_checked_once(checks: Checks, folder: Path) -> None:
    lines: list[str] = []
    choice = KernelChoice(LEVELS[0], lines.append)
    address = choice.address(gated, "relu2")
    assert address == gated.address(LEVELS[0], "relu2")
    assert choice.address(gated, "relu2") == address
    assert checks.asked == [("gated", LEVELS[0], "relu2")]
    # Told where the code is new to this machine, and not where the cache has it.
    assert all("compiling kernels: gated relu2" in line for line in lines)


def test_later_processes_do_not_check_again(checks: Checks, folder: Path) -> None:
    lines: list[str] = []
    KernelChoice(LEVELS[0], None).address(gated, "relu2")
    later = KernelChoice(LEVELS[0], lines.append)
    assert later.address(gated, "relu2") == gated.address(LEVELS[0], "relu2")
    assert len(checks.asked) == 1
    assert lines == []


def test_the_next_level_serves_where_one_is_wrong(checks: Checks, folder: Path) -> None:
    checks.wrong = {LEVELS[0]}
    lines: list[str] = []
    choice = KernelChoice(LEVELS[0], lines.append)
    assert choice.address(gated, "relu2") == gated.address(LEVELS[1], "relu2")
    warning = next(line for line in lines if line.startswith("warning"))
    assert "gated relu2" in warning
    assert "2 instead of 1" in warning
    # A failure is remembered like a success.
    later = KernelChoice(LEVELS[0], None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert later.address(gated, "relu2") == gated.address(LEVELS[1], "relu2")
    assert len(checks.asked) == 2


def test_without_progress_it_is_a_warning(checks: Checks, folder: Path) -> None:
    checks.wrong = {LEVELS[0]}
    with pytest.warns(RuntimeWarning, match="gated relu2"):
        KernelChoice(LEVELS[0], None).address(gated, "relu2")


def test_no_level_that_works_is_an_error(checks: Checks, folder: Path) -> None:
    checks.wrong = set(LEVELS)
    with pytest.raises(KernelError, match="norm"):
        KernelChoice(LEVELS[0], lambda line: None).address(norm, "rms")


def test_outcomes_need_no_folder(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_choice, "cache_folder", lambda: None)
    for _ in range(2):
        KernelChoice(LEVELS[0], None).address(gated, "relu2")
    assert len(checks.asked) == 2


def test_a_folder_that_went_away(checks: Checks, folder: Path) -> None:
    choice = KernelChoice(LEVELS[0], None)
    folder.rmdir()
    assert choice.address(gated, "relu2") == gated.address(LEVELS[0], "relu2")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"gated relu2", b"\n\n ok\n" * 3])
def test_a_damaged_file_is_a_file_that_says_nothing(
    content: bytes, checks: Checks, folder: Path
) -> None:
    KernelChoice(LEVELS[0], None).address(gated, "relu2")
    (file,) = folder.iterdir()
    file.write_bytes(content)
    KernelChoice(LEVELS[0], None).address(gated, "relu2")
    assert len(checks.asked) == 2


@pytest.mark.skipif(not loaded_code.supported(), reason="Numba loads the code here")
def test_a_system_that_refuses_executable_memory(
    checks: Checks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: object) -> int:
        raise OSError(13, "the system does not let memory become executable")

    monkeypatch.setattr(_jit, "load", refuse)
    unloaded = Kernel(gated.function, gated.own)
    with pytest.raises(KernelError, match=r"become executable.*execmem"):
        KernelChoice(LEVELS[0], None).address(unloaded, "silu")
