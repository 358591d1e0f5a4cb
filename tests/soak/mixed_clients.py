"""Eight clients of different kinds ask one server at the same time for some minutes.

    python tests/soak/mixed_clients.py --minutes 10
    python tests/soak/mixed_clients.py --minutes 60 --chat MODEL --embed MODEL --json figures.json

The models are SmolLM2 and MiniLM if scripts/models/real_models.py has installed them.
Each client has a kind, in turn: chats of several turns in the forms of OpenAI, Ollama and
Anthropic, stored responses, texts in llama.cpp's form, chats about retrieved documents, structured
output and tools, and short questions of many paths, some of which leave. The clients run in a
process of their own. This process meanwhile asks for /health 20 times a second and reads the
server's descriptors, mappings and memory. The exit code is 1 for a wrong or missing answer, if the
99th percentile of /health exceeds ``--health-ms``, or if the last tenth of the time has more
descriptors, mappings or memory than the third tenth and ``MORE``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT, ROOT / "kernels"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from scripts.models import real_models  # noqa: E402
from tests.soak.load_close import used  # noqa: E402

MORE = {"descriptors": 16, "mappings": 60, "anonymous kB": 16 << 10}
PATIENCE = 300.0
LISTENS = re.compile(r"listening on .*:(\d+)")
WORDS = (ROOT / "README.md").read_text(encoding="utf-8").split()
TOKENS = 48
# What each streamed form has in the events that carry text.
TEXT = re.compile(
    rb'"(?:content|text|delta|thinking|response|partial_json|arguments)": ?"(?:[^"\\]|\\.)+"'
)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "The weather of a city."}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"],
}


class Client:
    """One client, with the times that it measured and what went wrong."""

    def __init__(self, port: int, chat: str, embed: str, seed: int, end: float) -> None:
        self.port, self.chat, self.embed, self.end = port, chat, embed, end
        self.draws = random.Random(seed)
        self.firsts: list[float] = []
        self.gaps: list[float] = []
        self.wrong: list[str] = []
        self.asked = 0

    def run(self, turn: Callable[[Client], None]) -> None:
        """Repeat ``turn`` until the time is over."""
        while time.monotonic() < self.end:
            try:
                turn(self)
            except Exception as error:
                self.wrong.append(f"{turn.__name__}: {error!r:.400}")
                time.sleep(0.5)

    def words(self, least: int, most: int) -> str:
        """So many words of README.md, which differ each time."""
        start = self.draws.randrange(len(WORDS))
        count = self.draws.randint(least, most)
        return f"{self.draws.random():.9f} " + " ".join((WORDS * 3)[start : start + count])

    def whole(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Ask, and return the JSON of the response."""
        self.asked += 1
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        assert response.status == status, f"{path}: {response.status} {text[:300]!r}"
        return json.loads(text) if text.startswith((b"{", b"[")) else text

    def streamed(self, path: str, body: dict[str, Any], most: int = 1 << 30) -> list[Any]:
        """Ask, measure the stream's tokens, and return its events; leave after ``most`` texts."""
        self.asked += 1
        began, times, events = time.monotonic(), [], []
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            assert response.status == 200, f"{path}: {response.status} {response.read()[:300]!r}"
            for line in response:
                if TEXT.search(line):
                    times.append(time.monotonic())
                    if len(times) >= most:
                        break
                if line.strip() and not line.startswith((b"event:", b":", b"data: [DONE]")):
                    events.append(json.loads(line.removeprefix(b"data: ")))
        assert times, f"{path}: no text in {events[-3:]!r:.300}"
        self.firsts.append(times[0] - began)
        self.gaps += [after - before for before, after in pairwise(times)]
        return events


def text_of(events: Sequence[Any]) -> str:
    """The text of the deltas of chat completions."""
    choices = [choice for event in events for choice in event.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def openai_chat(client: Client) -> None:
    """A conversation of three turns, whose prompts grow."""
    messages: list[dict[str, Any]] = []
    for _ in range(3):
        messages.append({"role": "user", "content": client.words(10, 60)})
        body = {"model": client.chat, "messages": messages, "max_tokens": TOKENS}
        events = client.streamed(
            "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}
        )
        assert events[-1]["usage"]["completion_tokens"] > 0
        messages.append({"role": "assistant", "content": text_of(events)})


def ollama_chat(client: Client) -> None:
    """Two turns in Ollama's form, as Open WebUI sends them."""
    messages: list[dict[str, Any]] = []
    for _ in range(2):
        messages.append({"role": "user", "content": client.words(10, 60)})
        options = {"num_predict": TOKENS, "temperature": 0.8, "num_ctx": 2048}
        body = {"model": client.chat, "messages": messages, "options": options}
        events = client.streamed("/api/chat", {**body, "keep_alive": "5m"})
        assert events[-1]["done"]
        assert events[-1]["eval_count"] > 0
        text = "".join(event["message"]["content"] for event in events)
        messages.append({"role": "assistant", "content": text})


SYSTEM = "You are an agent. " + " ".join(WORDS[:500])  # shared by all turns, as agents do


def anthropic_agent(client: Client) -> None:
    """An agent: a long system text, which is cached, tools, and a short question."""
    events = client.streamed("/v1/messages", {
        "model": client.chat, "system": SYSTEM, "max_tokens": TOKENS,
        "tools": [{**TOOL, "input_schema": CITY}],
        "messages": [{"role": "user", "content": client.words(5, 30)}],
    })  # fmt: skip
    assert events[-1]["type"] == "message_stop"


def stored_responses(client: Client) -> None:
    """A stored response that another one continues; both are read and deleted."""
    body = {"model": client.chat, "max_output_tokens": TOKENS}
    first = client.streamed("/v1/responses", {**body, "input": client.words(10, 40)})
    name = first[-1]["response"]["id"]
    more = {**body, "input": "Why?", "previous_response_id": name}
    second = client.streamed("/v1/responses", more)[-1]["response"]
    assert client.whole("GET", f"/v1/responses/{second['id']}")["previous_response_id"] == name
    for stored in (name, second["id"]):
        client.whole("DELETE", f"/v1/responses/{stored}")


def llama_text(client: Client) -> None:
    """A text in llama.cpp's form."""
    body = {"model": client.chat, "prompt": client.words(5, 200), "n_predict": TOKENS}
    events = client.streamed("/completion", body)
    assert events[-1]["stop"]
    assert events[-1]["tokens_predicted"] > 0


def retrieval(client: Client) -> None:
    """Texts are embedded; a chat has some of them in its prompt."""
    texts = [client.words(40, 90) for _ in range(8)]
    found = client.whole("POST", "/v1/embeddings", {"model": client.embed, "input": texts})
    assert len(found["data"]) == len(texts)
    asked = "\n\n".join([*texts, "What is this about?"])
    body = {"model": client.chat, "messages": [{"role": "user", "content": asked}]}
    client.streamed("/v1/chat/completions", {**body, "max_tokens": TOKENS})


def structured(client: Client) -> None:
    """A schema and a tool that must be called; both texts are checked."""
    messages = [{"role": "user", "content": f"Describe a person. {client.words(5, 20)}"}]
    body: dict[str, Any] = {"model": client.chat, "messages": messages, "max_tokens": 200}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    events = client.streamed("/v1/chat/completions", {**body, "response_format": form})
    if events[-1]["choices"][0]["finish_reason"] == "stop":
        assert json.loads(text_of(events)).keys() == {"name", "age"}
    tools = [{"type": "function", "function": {**TOOL, "parameters": CITY}}]
    found = client.whole(
        "POST", "/v1/chat/completions", {**body, "tools": tools, "tool_choice": "required"}
    )["choices"][0]
    if found["finish_reason"] == "tool_calls":
        for call in found["message"]["tool_calls"]:
            assert json.loads(call["function"]["arguments"]).keys() == {"city"}


def various(client: Client) -> None:
    """Scores as lm-eval asks for them, tokens, lists, metrics, wrong requests, and a departure."""
    model, text = client.chat, client.words(10, 60)
    scored = {"model": model, "prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1}
    found = client.whole("POST", "/v1/completions", {**scored, "temperature": 0})["choices"][0]
    assert len(found["logprobs"]["tokens"]) > 10
    assert client.whole("POST", "/tokenize", {"model": model, "content": text})["tokens"]
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    assert client.whole("POST", "/v1/messages/count_tokens", body)["input_tokens"] > 10
    for path in ("/v1/models", "/api/tags", "/api/ps", "/props", "/slots", "/metrics"):
        client.whole("GET", path)
    client.whole("POST", "/v1/chat/completions", {**body, "temperature": "hot"}, status=400)
    client.whole("POST", "/v1/chat/completions", {**body, "model": "no-such-model"}, status=404)
    client.streamed("/v1/chat/completions", {**body, "max_tokens": 400}, client.draws.randint(1, 9))


KINDS = (openai_chat, ollama_chat, anthropic_agent, stored_responses, llama_text, retrieval,
         structured, various)  # fmt: skip


def ask(port: int, chat: str, embed: str, count: int, minutes: float, found: Any) -> None:
    """Run the clients; put what each measured into the queue ``found``."""
    end = time.monotonic() + 60 * minutes
    clients = [Client(port, chat, embed, seed, end) for seed in range(count)]
    kinds = [KINDS[number % len(KINDS)] for number in range(count)]
    threads = [
        threading.Thread(target=client.run, args=(kind,))
        for client, kind in zip(clients, kinds, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.put([
        (kind.__name__, client.asked, client.firsts, client.gaps, client.wrong)
        for client, kind in zip(clients, kinds, strict=True)
    ])  # fmt: skip


def watch(port: int, pid: int, asking: Any) -> tuple[list[float], list[dict[str, int]]]:
    """Seconds of /health and what the server uses, until the clients have ended."""
    healths: list[float] = []
    seen: list[dict[str, int]] = []
    said = time.monotonic()
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        while asking.is_alive():
            time.sleep(0.05)
            began = time.perf_counter()
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            healths.append(time.perf_counter() - began)
            assert response.status == 200, f"/health: {response.status}"
            if len(healths) % 40 == 0:
                seen.append(used(pid))
            if time.monotonic() > said + 60:
                said = time.monotonic()
                print(f"{seen[-1]}, /health {percentiles(healths[-1200:])}", flush=True)
    return healths, seen


def percentiles(seconds: Sequence[float]) -> str:
    """The median, 95th and 99th percentiles and the maximum in milliseconds."""
    found = [f"{name} {1000 * at(seconds, share):.1f}" for name, share in SHARES.items()]
    return f"{', '.join(found)} ms of {len(seconds)}"


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}


def at(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all are."""
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


def report(
    options: argparse.Namespace, healths: Sequence[float], seen: Sequence[dict[str, int]],
    clients: Sequence[tuple[str, int, list[float], list[float], list[str]]],
) -> int:  # fmt: skip
    """Print what was measured; return the exit code."""
    failed = 1000 * at(healths, 0.99) > options.health_ms
    print(f"/health: {percentiles(healths)}; the limit of p99 is {options.health_ms} ms")
    measured: dict[str, Any] = {"health": {name: at(healths, s) for name, s in SHARES.items()}}
    for kind, asked, firsts, gaps, _ in clients:
        print(f"{kind}: {asked} requests")
        print(f"  first token: {percentiles(firsts)}")
        print(f"  gaps: {percentiles(gaps)}")
        measured[kind] = {
            "requests": asked,
            "first": {name: at(firsts, share) for name, share in SHARES.items()},
            "gap": {name: at(gaps, share) for name, share in SHARES.items()},
        }
    tenth = max(1, len(seen) // 10)
    for what, more in MORE.items():
        third = max(one[what] for one in seen[2 * tenth : 3 * tenth] or seen)
        last = max(one[what] for one in seen[-tenth:])
        failed |= last > third + more
        print(f"{what}: {third} in the third tenth of the time, {last} in the last")
        measured[what] = [third, last]
    wrong = [text for *_, texts in clients for text in texts]
    for text, count in Counter(wrong).most_common(20):
        print(f"wrong, {count} times: {text}")
    print(f"{sum(asked for _, asked, *_ in clients)} requests, {len(wrong)} wrong answers")
    if options.json:
        Path(options.json).write_text(json.dumps(measured, indent=1), encoding="utf-8")
    return int(failed or bool(wrong))


def server_log(server: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The port of a server that starts, and the list to which its further lines come."""
    assert server.stderr is not None
    log: Iterator[str] = iter(server.stderr)
    port = next((int(found[1]) for line in log if (found := LISTENS.search(line))), 0)
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(log), daemon=True).start()
    return port, said


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=len(KINDS))
    parser.add_argument("--chat", default=str(real_models.path_of("smollm2")))
    parser.add_argument("--embed", default=str(real_models.path_of("minilm")))
    parser.add_argument("--health-ms", type=float, default=15.0, help="limit of the p99 of /health")
    parser.add_argument("--json", help="file for the figures, in seconds")
    parser.add_argument("serve", nargs="*", help="further options of trinity serve, after --")
    options = parser.parse_args()
    if not Path(options.chat).exists():
        parser.error(f"there is no {options.chat}; run real_models.py smollm2 minilm, or --chat")
    command = [sys.executable, "-m", "trinity", "serve", "--port", "0", "--kv-memory", "256M"]
    command += ["--model", f"chat={options.chat}", "--model", f"embed={options.embed}"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    server = subprocess.Popen(
        [*command, *options.serve],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        port, said = server_log(server)
        warm = Client(port, "chat", "embed", 1000, 0.0)
        for kind in KINDS:  # loads both models and compiles what is missing
            kind(warm)
            print(f"{kind.__name__}: first token after {warm.firsts[-1]:.2f} s", flush=True)
        context = multiprocessing.get_context("spawn")
        found = context.Queue()
        given = (port, "chat", "embed", options.clients, options.minutes, found)
        asking = context.Process(target=ask, args=given)
        asking.start()
        got: list[Any] = []
        threading.Thread(target=lambda: got.append(found.get()), daemon=True).start()
        healths, seen = watch(port, server.pid, asking)
        asking.join()
        assert server.poll() is None, said
    finally:
        server.terminate()
        server.wait(60)
    assert got, "the clients ended without a report"
    for line in said[:20]:
        print(f"the server wrote: {line.rstrip()}")
    return report(options, healths, seen, got[0])


if __name__ == "__main__":
    sys.exit(main())
