"""`llm`, the command line program, through its file of OpenAI-compatible models."""

# packages: llm==0.36

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import CHAT, URL, main, row

FOLDER = Path(tempfile.mkdtemp())
MODELS = f"""
- model_id: smol
  model_name: {CHAT}
  api_base: {URL}/v1
  supports_tools: true
  supports_schema: true
- model_id: smol-completion
  model_name: {CHAT}
  api_base: {URL}/v1
  completion: true
"""
(FOLDER / "extra-openai-models.yaml").write_text(MODELS, encoding="utf-8")


def llm(*arguments: str) -> str:
    environment = {**os.environ, "LLM_USER_PATH": str(FOLDER), "OPENAI_API_KEY": "none"}
    command = [str(Path(sys.executable).parent / "llm"), *arguments]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert ran.returncode == 0, ran.stderr[-500:]
    return ran.stdout.strip()


@row("prompt via extra-openai-models.yaml")
def _() -> None:
    assert llm("-m", "smol", "Say hello.", "-o", "max_tokens", "20")


@row("--no-stream")
def _() -> None:
    assert llm("-m", "smol", "--no-stream", "Say hello.", "-o", "max_tokens", "20")


@row("--schema")
def _() -> None:
    answer = llm(
        "-m", "smol", "--schema", "name, age int", "Invent a dog.", "-o", "temperature", "0"
    )
    found = json.loads(answer)
    assert isinstance(found["name"], str)
    assert isinstance(found["age"], int)


@row("tools (-T llm_time)")
def _() -> None:
    assert llm("-m", "smol", "-T", "llm_time", "What time is it?", "-o", "max_tokens", "40")


@row("chat -c continue")
def _() -> None:
    llm("-m", "smol", "My name is Ann.", "-o", "max_tokens", "20")
    assert llm("-c", "What is my name?", "-o", "max_tokens", "20")


@row("completion model")
def _() -> None:
    assert llm("-m", "smol-completion", "Once upon a time", "-o", "max_tokens", "10")


if __name__ == "__main__":
    main()
