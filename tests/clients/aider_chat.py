"""aider, a coding assistant, through its OpenAI provider: a file is written from the answer."""

# packages: aider-chat==0.86.2

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

HOME = tempfile.mkdtemp()


def aider(model: str, url: str, *arguments: str) -> tuple[Path, str]:
    folder = Path(tempfile.mkdtemp())
    environment = {**os.environ, "HOME": HOME, "OPENAI_API_KEY": "none",
                   "OPENAI_API_BASE": f"{url}/v1"}  # fmt: skip
    command = [
        str(Path(sys.executable).parent / "aider"), "--model", f"openai/{model}", "--yes",
        "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable",
        *arguments,
    ]  # fmt: skip
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-500:]
    return folder, ran.stdout


@row("--model openai/, ask")
def _() -> None:
    _, output = aider(SCRIPTED, SCRIPTED_URL, "--message", "Say hello.")
    assert "Hello! How can I help you today?" in output, output[-500:]


@row("--model openai/, whole edit")
def _() -> None:
    folder, output = aider(
        SCRIPTED, SCRIPTED_URL, "--edit-format", "whole", "--message", "Write aider-note.txt."
    )
    assert (folder / "aider-note.txt").read_text() == "written by aider\n", output[-500:]


@row("trinity launch aider --run")
def _() -> None:
    folder = Path(tempfile.mkdtemp())
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": HOME, "PATH": programs,
                   "PYTHONPATH": os.environ["TRINITY_PYTHONPATH"]}  # fmt: skip
    command = [
        os.environ["TRINITY_PYTHON"], "-m", "trinity", "launch", "aider", "--run", "--url",
        SCRIPTED_URL, "--", "--yes", "--no-git", "--no-check-update", "--analytics-disable",
        "--edit-format", "whole", "--message", "Write aider-note.txt.",
    ]  # fmt: skip
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-500:]
    assert (folder / "aider-note.txt").read_text() == "written by aider\n", ran.stdout[-500:]


@row("--model openai/smol, default server")
def _() -> None:
    _, output = aider(CHAT, URL, "--no-stream", "--message", "Say hello.")
    assert "Tokens:" in output, output[-500:]


if __name__ == "__main__":
    main()
