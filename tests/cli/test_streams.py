"""Standard streams that are closed, full or closed early by the reader, for every subcommand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_process import ENVIRONMENT
from tests.matrix import some
from trinity.cli.commands import COMMANDS
from trinity.loading import demo_model

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
# As strict as Python gets: what the interpreter itself notices at its end would be shown.
TRINITY = f"{sys.executable} -X dev -W error -m trinity"
FULL = "error: standard output: cannot be written: No space left on device"


def shell(script: str) -> subprocess.CompletedProcess[str]:
    """Run a bash script in which $T is the command line and $M the demo model."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "T": TRINITY, "M": demo_model()},
        timeout=300,
        check=False,
    )
    for sign in ("Traceback", "ignored", "Errno"):
        assert sign not in done.stderr
    return done


@pytest.mark.parametrize("command", some(COMMANDS, ["inspect"]))
def test_help_onto_a_full_disk(command: str) -> None:
    done = shell(f"$T {command} --help >/dev/full")
    assert (done.returncode, done.stderr) == (1, FULL + "\n")


@pytest.mark.full
def test_completion_that_cannot_be_installed_is_no_error_of_standard_output(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.touch()
    done = shell(
        f"HOME='{home}' $T --install-completion; exit $?"
    )  # bash stays the parent, which tells the shell
    assert done.returncode == 1
    assert f"error: {home}" in done.stderr
    assert "cannot be written (" in done.stderr
    assert "--show-completion prints" in done.stderr


@pytest.mark.parametrize("command", some(COMMANDS, ["inspect"]))
def test_an_error_without_standard_error(command: str) -> None:
    """Nothing is written anywhere else."""
    done = shell(f"$T {command} --no-such-option 2>&-")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.full
@pytest.mark.parametrize("command", ["inspect no", "chat -m no"])
@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", "2>/dev/full", "2> >(true)"])
def test_an_explained_error_is_1(command: str, streams: str) -> None:
    done = shell(f"$T {command} {streams}")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "streams", "expected"),
    [
        ("--version", ">&-", (0, "", "")),
        ("--version", ">/dev/full", (1, "", FULL + "\n")),
        ("--version", "| true", (0, "", "")),
        ("--help", "| true", (0, "", "")),
        ("inspect $M", ">/dev/full", (1, "", FULL + "\n")),
        ("inspect $M", "| true", (0, "", "")),
        ("quantize $M $(mktemp -d)/q TQ2_0", "2>/dev/null >/dev/full", (0, "", "")),
        ("inspect $M --verify", "2>/dev/full >/dev/null", (0, "", "")),
    ],
)
def test_ends(command: str, streams: str, expected: tuple[int, str, str]) -> None:
    done = shell(f"$T {command} {streams}")
    assert (done.returncode, done.stdout, done.stderr) == expected


@pytest.mark.full
def test_notices_never_reach_standard_output() -> None:
    """`tokenize` reports the model that it uses; without standard error the output is the same."""
    expected = shell("$T tokenize --ids 'Prince Andrew' 2>/dev/null").stdout
    for streams in ("2>&-", "2> >(true)", "<&- 2>&-"):
        done = shell(f"$T tokenize --ids 'Prince Andrew' {streams}")
        assert (done.returncode, done.stdout) == (0, expected)


@pytest.mark.full
def test_nothing_is_written_into_files_that_take_the_numbers_of_streams(tmp_path: Path) -> None:
    shell(f"$T quantize $M {tmp_path}/a TQ2_0")
    done = shell(f"$T quantize $M {tmp_path}/b TQ2_0 <&- >&- 2>&-")
    assert done.returncode == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
