"""gptme, an assistant on the command line, through its local OpenAI-compatible provider."""

# packages: gptme==0.35.1

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import SCRIPTED, SCRIPTED_URL, main, row

PROGRAM = Path(sys.executable).with_name("gptme")


def gptme(folder: str, text: str, *more: str) -> list[dict[str, str]]:
    """Run the program in a folder; return the messages of its log."""
    command = [str(PROGRAM), "--non-interactive", "-m", f"local/{SCRIPTED}", *more, text]
    variables = {"HOME": folder, "OPENAI_BASE_URL": f"{SCRIPTED_URL}/v1", "OPENAI_API_KEY": "none"}
    subprocess.run(command, cwd=folder, env={**os.environ, **variables}, check=True,
                   capture_output=True, timeout=300)  # fmt: skip
    (log,) = Path(folder).rglob("conversation.jsonl")
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


@row("a chat")
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = gptme(folder, "Say hello.", "--tools", "none")
    said = [one["content"] for one in found if one["role"] == "assistant"]
    assert said[0] == "Hello! How can I help you today?"


@row("a command is run and its output read")
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = gptme(folder, "Write the file gptme-note.txt.")
        written = Path(folder, "gptme-note.txt").read_text(encoding="utf-8")
    assert written.strip() == "written by gptme"
    said = [one["content"] for one in found if one["role"] == "assistant"]
    assert "The file gptme-note.txt is written." in said


if __name__ == "__main__":
    main()
