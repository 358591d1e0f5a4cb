"""The command line as a separate process: pipes, signals and start-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trinity

ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH, "PYTHONIOENCODING": "utf-8"}
# The real command line over the toy model, whose answer is 180 characters.
TOY = """
import time
import trinity.loading
from tests.toy_model import toy_model
from trinity.cli import main
model, engine = toy_model(context_length=256)
engine.says("hello " * 30, after=3)
engine.before_forward = lambda tokens: time.sleep({seconds})
trinity.loading.load = lambda path, **options: model
main()
"""
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and shells")


def toy(seconds: float) -> list[str]:
    """Return a command whose model writes a character every so many seconds."""
    code = TOY.format(seconds=seconds)
    return [sys.executable, "-c", code, "generate", "-m", "x", "-p", "ab"]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )


def test_version() -> None:
    done = python("-m", "trinity", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"trinity {trinity.__version__}")


def test_help_names_the_commands_and_is_light() -> None:
    done = python("-X", "importtime", "-m", "trinity", "--help")
    assert done.returncode == 0
    for name in ("generate", "chat", "inspect", "tokenize", "bench", "warmup", "selftest"):
        assert name in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {"numpy", "numba", "rich", "tokenizers", "sentencepiece", "jinja2", "prompt_toolkit"}
    assert imported & heavy == set()


@pytest.mark.full
def test_wrong_usage_is_2() -> None:
    done = python("-m", "trinity", "warmup", "--threads", "2")
    assert done.returncode == 2
    assert "--model" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_missing_model_is_1() -> None:
    done = python("-m", "trinity", "generate", "-m", "no-such.gguf", "--prompt", "x")
    assert done.returncode == 1
    assert "no-such.gguf" in done.stderr
    assert "Traceback" not in done.stderr


def test_piped_output_is_plain() -> None:
    done = python(*toy(0)[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("hello " * 30).strip()
    assert "\x1b" not in done.stdout + done.stderr


@posix
def test_reader_that_leaves_early() -> None:
    with subprocess.Popen(
        toy(0.01), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"hello"
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


@posix
def test_text_comes_as_it_is_made_and_ctrl_c_is_130() -> None:
    with subprocess.Popen(
        toy(0.05), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b"hello"
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().decode()
        errors = process.stderr.read().decode()
    assert process.returncode == 130
    assert 0 < len(rest) < 170
    assert "cancelled" in errors
    assert "Traceback" not in errors
