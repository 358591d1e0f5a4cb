"""Load and close two models in turn in a server whose memory limit has room for one.

    python tests/soak/load_close.py --turns 2000
    python tests/soak/load_close.py --turns 60 --model SmolLM2.gguf
    python tests/soak/load_close.py --turns 2000 --api

A turn asks each model for a short chat, which unloads the other. The server is a process of the
command line that never runs Python's garbage collector, so that memory which only a collection
would free counts. All requests use one connection, because asyncio and uvicorn leave a closed
connection (12 kB) to the collector. After each turn the script reads the server's descriptors,
mappings and anonymous memory. The exit code is 1 if not exactly one model was mapped after an
answer, or if the last tenth of the turns has more than the third tenth and ``MORE``. With --api a
turn loads a model through the Python API in this process, answers and closes it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from tests.soak.attacked_server import Kind, Server, write_models  # noqa: E402
from tests.soak.ordinary_client import KEY, PATIENCE  # noqa: E402

NAMES = ("tiny", "other")
MORE = {"descriptors": 0, "mappings": 20, "anonymous kB": 2 << 10}
MORE_OF_A_LARGE_MODEL = {**MORE, "anonymous kB": 16 << 10}
WITHOUT_COLLECTOR = "import gc; gc.disable(); from trinity.__main__ import main; main()"


def server_kind(models: Path) -> Kind:
    """A server of two models of one size, with memory for one."""
    limit = (models / "tiny.gguf").stat().st_size * 3 // 2
    options = ("--model", "other={models}/other.gguf", "--memory-limit", str(limit))
    return Kind(options, python=("-c", WITHOUT_COLLECTOR))


def used(pid: int) -> dict[str, int]:
    """Descriptors, mappings and anonymous memory of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    anonymous = re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE)
    assert anonymous
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "mappings": Path(f"/proc/{pid}/maps").read_text().count("\n"),
        "anonymous kB": int(anonymous[1]),
    }


def chat(connection: HTTPConnection, model: str) -> None:
    body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    connection.request(
        "POST",
        "/v1/chat/completions",
        json.dumps(body),
        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    response = connection.getresponse()
    text = response.read()
    assert response.status == 200, text


def mapped(pid: int, models: Path) -> list[str]:
    """The names of the models that a process has mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in NAMES if str(models / f"{name}.gguf") in maps]


def turns(server: Server, models: Path, count: int) -> tuple[list[dict[str, int]], int]:
    """What the server used after each turn, and how often not exactly one model was mapped."""
    pid, wrong = server.process.pid, 0
    seen: list[dict[str, int]] = []
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
        began = time.monotonic()
        for turn in range(1, count + 1):
            for name in NAMES:
                chat(connection, name)
                wrong += mapped(pid, models) != [name]
            seen.append(used(pid))
            show(turn, count, began, seen[-1])
    return seen, wrong


def api_turns(model: Path, count: int) -> list[dict[str, int]]:
    """What this process used after each load, answer and close."""
    import trinity

    seen: list[dict[str, int]] = []
    began = time.monotonic()
    gc.disable()
    for turn in range(1, count + 1):
        with trinity.load(model, threads=1) as loaded:
            loaded.generate("Hello", max_tokens=4)
        seen.append(used(os.getpid()))
        show(turn, count, began, seen[-1])
    gc.enable()
    return seen


def show(turn: int, count: int, began: float, found: dict[str, int]) -> None:
    """Print some of the turns."""
    if turn in (1, 10) or turn % max(1, count // 10) == 0:
        print(f"{turn:6} turns, {time.monotonic() - began:5.0f} s: {found}", flush=True)


def grown(seen: list[dict[str, int]], most: dict[str, int] = MORE) -> list[str]:
    """What the last tenth of the turns has more than the third tenth and ``most``."""
    tenth = max(1, len(seen) // 10)
    found = []
    for name, more in most.items():
        before = max(one[name] for one in seen[2 * tenth : 3 * tenth])
        after = max(one[name] for one in seen[-tenth:])
        if after > before + more:
            found.append(f"{name}: {before}, in the end {after}")
    return found


def server_turns(models: Path, count: int) -> tuple[list[dict[str, int]], int]:
    """``turns`` of a new server with tiny.gguf of ``models`` and a copy of it."""
    shutil.copy(models / "tiny.gguf", models / "other.gguf")
    server = Server(models, server_kind(models), models)
    try:
        server.until_ready()
        return turns(server, models, count)
    finally:
        server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--api", action="store_true", help="use the Python API, not a server")
    parser.add_argument("--model", type=Path, help="a GGUF file; a random, tiny one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models, wrong = Path(folder), 0
        if options.model:
            shutil.copy(options.model, models / "tiny.gguf")
        else:
            write_models(models)
        if options.api:
            seen = api_turns(models / "tiny.gguf", options.turns)
        else:
            seen, wrong = server_turns(models, options.turns)
    found = grown(seen, MORE_OF_A_LARGE_MODEL if options.model else MORE)
    if wrong:
        found.append(f"after {wrong} answers not exactly one model was mapped")
    print(f"{len(seen)} turns: {'; '.join(found) or 'nothing grows'}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
