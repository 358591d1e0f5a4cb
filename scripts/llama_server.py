#!/usr/bin/env python3
"""Translate llama-server's options to `trinity serve`, to run llama.cpp's tests of its server.

    LLAMA_SERVER_BIN_PATH=scripts/llama_server.py STORIES=stories260K.gguf pytest unit/test_basic.py

Run it in tools/server/tests of llama.cpp's sources. STORIES is the path of stories260K.gguf, which
replaces every model that a test names on the hub, so tests that need another model fail. If VISION
and EMBEDDER are set, these models replace tinygemma3 and bert-bge-small. Options that only change
speed are dropped; unsupported options end with status 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from datetime import date
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Context that stories260K is trained with; llama-server, too, gives a slot no more.
TRAINED = 2048
# A router has no model of its own: the name by which the tests ask one for it.
ROUTED = "ggml-org/tinygemma3-GGUF:Q8_0"
# Part of a model's name on the hub: the variable with the path of its replacement.
OTHERS = {"tinygemma3": "VISION", "bert-bge-small": "EMBEDDER"}
# llama-server's option: ours, which takes the same value.
SAME = {
    "--port": "--port", "--host": "--host", "--temp": "--temperature", "--seed": "--seed",
    "--threads": "--threads", "--parallel": "--parallel", "--batch-size": "--batch-size",
    "--n-predict": "--max-tokens", "--api-key": "--api-key", "--lora": "--lora",
    "--pooling": "--pooling", "--tags": "--tags", "--slot-save-path": "--slot-save-path",
    "--keep": "--keep", "--media-path": "--media-path",
}  # fmt: skip
# Of no meaning here, or always on. The value says whether the option has one.
DROPPED = {
    "--offline": False, "--ubatch-size": True, "--n-gpu-layers": True,
    "--cont-batching": False, "--embedding": False, "--swa-full": False, "--slots": False,
    "--jinja": False, "--no-jinja": False, "-fa": True,
    "--hf-repo": True, "--hf-file": True, "--model-url": True, "--cache-ram": True,
    "--no-cache-idle-slots": False, "--backend_sampling": False,
    "--mmproj-url": True, "--reranking": False,
    "--reasoning-format": True,
}  # fmt: skip

# Chat templates that llama-server has by name, in Jinja2.
TEMPLATES = {
    "chatml": (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
        "<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama3": (
        "{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
        "{{ message.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "command-r": (
        "{% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}"
        "{% for message in messages %}<|START_OF_TURN_TOKEN|><|{{ names[message.role] }}_TOKEN|>"
        "{{ message.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
        "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"
    ),
}


def template_file(text: str) -> str:
    """Return a file with a chat template: one that llama-server names, or the given text."""
    written = TEMPLATES.get(text, text)
    name = f"chat-template-{sha256(written.encode()).hexdigest()[:16]}.jinja"
    path = Path(tempfile.gettempdir()) / name
    path.write_text(written, encoding="utf-8")
    return str(path)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    for option in SAME:
        parser.add_argument(option, dest=option, action="append")
    for option, valued in DROPPED.items():
        parser.add_argument(option, action="store" if valued else "store_true", dest=option)
    parser.add_argument("--model")
    parser.add_argument("--alias")
    parser.add_argument("--cors-origins", default="*")
    parser.add_argument("--ctx-size", type=int)
    for switch in (
        "--kv-unified", "--metrics", "--no-slots", "--verbose", "--context-shift", "--no-ui",
        "--no-mmproj",
    ):  # fmt: skip
        parser.add_argument(switch, action="store_true")
    parser.add_argument("--chat-template")
    parser.add_argument("--reasoning", choices=("on", "off", "auto"), default="auto")
    parser.add_argument("--chat-template-file")
    given = parser.parse_args(arguments)
    wanted = f"{vars(given)['--hf-repo']} {vars(given)['--hf-file']}"
    other = next((os.environ.get(name) for part, name in OTHERS.items() if part in wanted), None)
    model = given.model or other or os.environ.get("STORIES", "")
    if not os.path.exists(model):
        parser.error(f"there is no model {model!r}: STORIES must be the path of stories260K.gguf")
    named = given.model or vars(given)["--hf-repo"] or vars(given)["--model-url"]
    alias = given.alias or ("stories260K" if named else ROUTED)
    aliases, alias = alias, min(alias.split(","))  # llama-server, too, takes the first of all
    ours = ["serve", "--model", f"{alias}={model}", "--any-model-name", "--kv-type", "f16"]
    if given.alias:
        ours += ["--alias", aliases]
    if given.no_mmproj:
        ours.append("--no-mmproj")
    if given.context_shift:
        ours.append("--context-shift")
    if not named:
        ours += ["--no-preload"]
    for theirs, name in SAME.items():
        for value in getattr(given, theirs) or ():
            if (theirs, value) != ("--n-predict", "-1"):  # no limit, as here without one
                ours += [name, value]
    thinking = given.reasoning != "off"
    # llama-server tells templates the day in the words of two families. One of them also wants a
    # text of functions: tools get into a system text here.
    today = {"date_string": f"{date.today():%d %b %Y}", "datetime": f"{date.today():%b %d %Y}"}
    names = {"enable_thinking": thinking, **today, "functions": ""}
    ours += ["--chat-template-kwargs", json.dumps(names)]
    if given.ctx_size:  # of all slots together, unless they share it
        slots = 1 if given.kv_unified else int((getattr(given, "--parallel") or ["1"])[-1])
        ours += ["--ctx", str(min(given.ctx_size // slots, TRAINED))]
    if not given.metrics:
        ours += ["--disable", "/metrics"]
    if given.no_slots:
        ours += ["--disable", "/slots"]
    if given.no_ui:
        ours += ["--disable", "/"]
    if given.verbose:
        ours.append("--verbose-answers")
    for origin in given.cors_origins.split(","):
        if origin != "localhost":  # pages of this machine may ask in any case
            ours += ["--allowed-origin", origin]
    if given.chat_template_file:
        ours += ["--chat-template", given.chat_template_file]
    elif given.chat_template:
        ours += ["--chat-template", template_file(given.chat_template)]
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    os.execv(sys.executable, [sys.executable, "-m", "trinity", *ours])


if __name__ == "__main__":
    main(sys.argv[1:])
