"""Signals at any moment: no traceback, the right exit status, no temporary file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_process import ENVIRONMENT
from tests.matrix import some
from trinity.loading import demo_model

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
# The command line, which signals itself when a module is first looked for, or at the end.
PROGRAM = """
import os, signal, sys
number, moment, *sys.argv[1:] = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)
def strike():
    os.kill(os.getpid(), int(number))
class Finder:
    def find_spec(self, name, *rest):
        if name == moment:
            strike()
if moment == "exit":
    import atexit
    atexit.register(strike)
sys.meta_path.insert(0, Finder())
from trinity.__main__ import main
main()
"""


def strike(number: int, moment: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(number), moment, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("moment", "option"),
    [
        ("trinity.cli", "--json"), ("trinity.cli.inspect", "--json"), ("numpy", "--json"),
        ("exit", "--json"), ("typer", "--help"), ("trinity.cli.application", "--help"),
    ],
)  # fmt: skip
def test_ctrl_c_is_quiet(moment: str, option: str) -> None:
    """The signal comes during imports, where C code may turn it into other errors."""
    done = strike(signal.SIGINT, moment, "inspect", demo_model(), option)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("moment", ["trinity.cache", "trinity.cache.private_folder"])
def test_ctrl_c_is_quiet_before_the_command_line_is_imported(moment: str, tmp_path: Path) -> None:
    """The installed script imports the package before it calls main."""
    script = tmp_path / "trinity"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, script, "2", moment, "--version"], capture_output=True, text=True,
        env=ENVIRONMENT, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("name", some(["SIGTERM", "SIGHUP", "SIGQUIT"], ["SIGHUP"]))
def test_other_signals_end_as_they_do(name: str) -> None:
    number = getattr(signal, name)
    done = strike(number, "numpy", "inspect", demo_model())
    assert (done.returncode, done.stderr) == (-number, "")


@pytest.mark.full
def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """`nohup` ignores the signal."""
    code = PROGRAM.replace(
        "from trinity.__main__", "signal.signal(1, signal.SIG_IGN)\nfrom trinity.__main__"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "1", "numpy", "tokenize", "-m", demo_model(), "ab"],
        capture_output=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_writer_leaves_nothing(name: str, tmp_path: Path) -> None:
    number = getattr(signal, name)
    code = f"""
import os, signal, sys
from trinity.quantization import rows
signal.signal(signal.SIGINT, signal.default_int_handler)
real = rows.quantize_rows
def struck(*arguments):
    assert os.listdir({str(tmp_path)!r}) != []
    os.kill(os.getpid(), {number:d})
    return real(*arguments)
rows.quantize_rows = struck
from trinity.__main__ import main
sys.argv[1:] = ["quantize", {demo_model()!r}, {str(tmp_path / "out.gguf")!r}, "Q4_0",
                "--allow-requantize"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == (130 if name == "SIGINT" else -number)
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []
