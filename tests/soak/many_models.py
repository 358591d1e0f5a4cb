"""Clients of each API ask three models of one server, of which memory holds two at once.

    python tests/soak/many_models.py --loads 1000
    python tests/soak/many_models.py --minutes 10

Clients chat, complete and embed in the forms of OpenAI, Anthropic, Ollama and llama.cpp, unload
models, and leave during streams. Meanwhile another connection asks for /health 20 times a second.
Each completion must have the tokens that its model gives alone (``token_hash``). The exit code is
1 for a wrong or missing answer, or if the last tenth of the time has more descriptors, mappings or
memory than the third tenth and ``MORE``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from tests.soak.load_close import used  # noqa: E402

DATA = ROOT / "trinity" / "data"
MODELS = {
    "story": DATA / "demo.gguf",
    "chat": DATA / "demo-chat.gguf",
    "small": ROOT / "tests" / "data" / "stories260K" / "Q4_0.gguf",
}
PROMPTS = ("Once upon a time", "Who was Prince Andrew?", "Hello")
TOKENS = 12
MORE = {"descriptors": 16, "mappings": 60, "anonymous kB": 8 << 10}
PATIENCE = 120.0
LISTENS = re.compile(r"listening on .*:(\d+)")


class Clients:
    """Asks one server; ``wrong`` has what should not have happened."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.counts = Counter[str]()
        self.wrong: list[str] = []
        self.loads = 0
        self.health: list[float] = []
        self.ended = threading.Event()
        self.known: dict[tuple[str, str, str], str] = {}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def answer(self, form: str, model: str, prompt: str, stream: bool) -> str:
        """Ask in one form; return the hash of the response's tokens."""
        body: dict[str, Any] = {"model": model, "stream": stream, "temperature": 0}
        talk = {"messages": [{"role": "user", "content": prompt}]}
        match form:
            case "openai":
                path, body = "/v1/chat/completions", {**body, **talk, "max_tokens": TOKENS}
            case "anthropic":
                path, body = "/v1/messages", {**body, **talk, "max_tokens": TOKENS}
            case "completions":
                path, body = "/v1/completions", {**body, "prompt": prompt, "max_tokens": TOKENS}
            case "llama":
                path, body = "/completion", {**body, "prompt": prompt, "n_predict": TOKENS}
            case _:
                options = {"num_predict": TOKENS, "temperature": 0}
                path, body = "/api/chat", {
                    "model": model, "stream": stream, **talk, "options": options,
                    "keep_alive": random.choice([0, 5, -1]),
                }  # fmt: skip
        status, text = self.post(path, body)
        assert status == 200, f"{path}: {status} {text[:300]!r}"
        found = re.findall(rb'"token_hash":"(\w+)"', text)
        assert found, f"{path}: no hash in {text[-300:]!r}"
        return str(found[-1].decode())

    def learn(self) -> None:
        """Ask everything once, alone."""
        for form in FORMS:
            for model in MODELS:
                for prompt in PROMPTS:
                    self.known[form, model, prompt] = self.answer(form, model, prompt, False)

    def client(self, seed: int) -> None:
        draws = random.Random(seed)
        while not self.ended.is_set():
            kind = draws.choices(("answer", "embed", "unload", "leave"), (70, 10, 10, 10))[0]
            model, prompt = draws.choice(list(MODELS)), draws.choice(PROMPTS)
            self.counts[kind] += 1
            try:
                if kind == "answer":
                    form = draws.choice(FORMS)
                    found = self.answer(form, model, prompt, draws.random() < 0.5)
                    wanted = self.known[form, model, prompt]
                    assert found == wanted, f"{form} {model} {prompt}: another answer"
                elif kind == "embed":
                    body = {"model": model, "input": [prompt, "b"]}
                    status, text = self.post("/v1/embeddings", body)
                    assert (status, len(json.loads(text)["data"])) == (200, 2), text[:300]
                elif kind == "unload":
                    status, text = self.post("/models/unload", {"model": model})
                    assert status in (200, 400), text[:300]
                else:
                    self.leave(model, prompt)
            except Exception as error:
                self.wrong.append(f"{kind}: {error!r:.400}")

    def leave(self, model: str, prompt: str) -> None:
        """Begin a stream and close the connection at its first bytes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        body = {"model": model, "prompt": prompt, "max_tokens": 200, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        connection.getresponse().read(1)
        connection.close()

    def watch_health(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        while not self.ended.wait(0.05):
            began = time.monotonic()
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            self.health.append(time.monotonic() - began)
            if response.status not in (200, 503):
                self.wrong.append(f"/health: {response.status}")

    def watch_loads(self) -> None:
        while not self.ended.is_set():
            connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            connection.request("GET", "/models/sse")
            response = connection.getresponse()
            try:
                while line := response.readline():
                    self.loads += b'"loaded"' in line
            except OSError:
                pass  # it is silent, or the server ends
            connection.close()


FORMS = ("openai", "anthropic", "completions", "llama", "ollama")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", type=int, default=0, help="end after so many loads")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=6)
    options = parser.parse_args()
    size = MODELS["chat"].stat().st_size
    command = [sys.executable, "-m", "trinity", "serve", "--port", "0", "--batch-invariant"]
    command += ["--memory-limit", str(size * 3 // 2), "--threads", "2"]
    for name, path in MODELS.items():
        command += ["--model", f"{name}={path}"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    server = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert server.stderr is not None
    log = iter(server.stderr)
    port = next(int(found[1]) for line in log if (found := LISTENS.search(line)))
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(log), daemon=True).start()
    clients = Clients(port)
    seen: list[dict[str, int]] = []
    try:
        clients.learn()
        threads = [
            threading.Thread(target=clients.client, args=(seed,)) for seed in range(options.clients)
        ]
        threads += [threading.Thread(target=clients.watch_health)]
        for thread in threads:
            thread.start()
        threading.Thread(target=clients.watch_loads, daemon=True).start()
        end = time.monotonic() + 60 * options.minutes
        while time.monotonic() < end and not 0 < options.loads <= clients.loads:
            time.sleep(2)
            seen.append(used(server.pid))
            if len(seen) % 30 == 1:
                told = f"{clients.loads} loads, {len(clients.wrong)} wrong answers"
                print(f"{told}, {dict(clients.counts)}, {seen[-1]}", flush=True)
            assert server.poll() is None, said
        clients.ended.set()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        clients.ended.set()
        server.terminate()
        server.wait(60)
    return report(clients, seen)


def report(clients: Clients, seen: list[dict[str, int]]) -> int:
    """Print what was found; return the exit code."""
    times = sorted(clients.health)
    p50, p99, most = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99, 1.0))
    print(f"{clients.loads} loads; {sum(clients.counts.values())} requests {dict(clients.counts)}")
    print(f"/health: {len(times)} times, p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.1f} ms")
    tenth = max(1, len(seen) // 10)
    failed = bool(clients.wrong)
    for what, more in MORE.items():
        third = max(one[what] for one in seen[2 * tenth : 3 * tenth] or seen)
        last = max(one[what] for one in seen[-tenth:])
        failed |= last > third + more
        print(f"{what}: {third} in the third tenth of the time, {last} in the last")
    for wrong in clients.wrong[:20]:
        print(f"wrong: {wrong}")
    print(f"{len(clients.wrong)} wrong answers")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
