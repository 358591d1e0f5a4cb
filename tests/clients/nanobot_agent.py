"""nanobot, a personal agent, by its providers for Ollama, vLLM, LM Studio and other servers."""

# packages: nanobot-ai==0.3.5

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import SCRIPTED, SCRIPTED_URL, main, row

PROGRAM = Path(sys.executable).with_name("nanobot")


def nanobot(folder: str, provider: str, text: str) -> str:
    """Return what the program prints for a message, with the settings of a new folder."""
    settings = {
        "agents": {
            "defaults": {"model": SCRIPTED, "provider": provider, "workspace": f"{folder}/work"}
        },
        "providers": {provider: {"apiKey": "none", "apiBase": f"{SCRIPTED_URL}/v1"}},
    }
    Path(folder, ".nanobot").mkdir()
    Path(folder, ".nanobot", "config.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [str(PROGRAM), "agent", "--no-markdown", "-m", text]
    found = subprocess.run(command, cwd=folder, env={**os.environ, "HOME": folder}, check=True,
                           capture_output=True, text=True, timeout=300)  # fmt: skip
    return found.stdout


def chat(provider: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert "Hello! How can I help you today?" in nanobot(folder, provider, "Say hello.")


for _provider in ("custom", "vllm", "ollama", "lm_studio"):
    row(f"{_provider} a chat")(lambda provider=_provider: chat(provider))


@row("custom a command is run and its output read")
def _() -> None:
    with tempfile.TemporaryDirectory() as folder:
        said = nanobot(folder, "custom", "Write the file nanobot-note.txt.")
        written = Path(folder, "work", "nanobot-note.txt").read_text(encoding="utf-8")
    assert written.strip() == "written by nanobot"
    assert "The file nanobot-note.txt is written." in said


if __name__ == "__main__":
    main()
