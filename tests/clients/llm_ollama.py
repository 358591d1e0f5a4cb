"""`llm` with its plugin for Ollama's API."""

# packages: llm==0.36 llm-ollama==0.19.1

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

LLM = str(Path(sys.executable).with_name("llm"))
PERSON = '{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}}}'
WEATHER = """def get_weather(city: str) -> str:
    "The weather of a city."
    return f"18 degrees in {city}"
"""
FOLDER = tempfile.mkdtemp()


def llm(*arguments: str, url: str = URL) -> str:
    environment = {**os.environ, "LLM_USER_PATH": FOLDER, "OLLAMA_HOST": url}
    ran = subprocess.run(
        [LLM, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-700:]
    return ran.stdout


@row("ollama models")
def ollama_models() -> None:
    assert CHAT in llm("ollama", "models")


@row("ollama prompt")
def ollama_prompt() -> None:
    assert llm("-m", f"ollama/{CHAT}", "Say hello.", "-o", "num_predict", "16").strip()


@row("ollama prompt without a stream")
def ollama_whole() -> None:
    assert llm("-m", f"ollama/{CHAT}", "--no-stream", "-s", "Be short.", "Hi.").strip()


@row("ollama conversation")
def ollama_conversation() -> None:
    llm("-m", f"ollama/{CHAT}", "Hello.")
    assert llm("-c", "And?", "-o", "num_predict", "16").strip()


@row("ollama schema")
def ollama_schema() -> None:
    asked = "A Person called Ann as JSON, please."
    found = llm("-m", f"ollama/{SCRIPTED}", "--schema", PERSON, asked, url=SCRIPTED_URL)
    assert json.loads(found) == {"name": "Ann", "age": 40}


# SmolLM2's template lists no tools, so /api/show does not name them among the capabilities.
@row("ollama tool", excused="the client offers tools only to models whose template lists them")
def ollama_tool() -> None:
    asked = "What is the weather in Paris?"
    found = llm("-m", f"ollama/{SCRIPTED}", "--functions", WEATHER, asked, url=SCRIPTED_URL)
    assert found.strip().endswith("It is 18 degrees in Paris.")


@row("ollama embedding")
def ollama_embedding() -> None:
    assert len(json.loads(llm("embed", "-m", f"ollama/{EMBEDDER}", "-c", "Hello"))) == 384


if __name__ == "__main__":
    main()
