"""Clients that disconnect in every phase of a request: their work must end within two steps.

    python tests/soak/leaving.py --clients 10000
    python tests/soak/leaving.py --clients 500 queued whole_answer

The demo model serves in this process, with steps of 25 ms or more. In each round some clients ask,
go on until the phase, send further bytes or none, and leave: by an end of both directions, by one
of their own direction alone, or by a reset. The exit code is 1 if work of theirs was in a third
step after that.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import trinity  # noqa: E402
from trinity.model import Model  # noqa: E402
from trinity.server.app import make_app  # noqa: E402
from trinity.server.models import Models  # noqa: E402
from trinity.server.process import Server, config, listening  # noqa: E402
from trinity.server.served import Served  # noqa: E402
from trinity.server.settings import ServerOptions  # noqa: E402

STEPS = 2  # that may begin after a client has left
STEP_SECONDS = 0.025
PARTS = 25  # of a step: where the process waits for its processors, so does each part
AT_ONCE = 16  # clients of a round
LIMIT = 60.0  # seconds until what does not come is taken for a hang
CHAT = "/v1/chat/completions"

Body = dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """What is asked for, and when it has come so far that clients leave.

    ``body`` makes the request of a number; ``path`` is where it goes. ``reads``: the first bytes of
    the answer come before. ``queued``: other requests have all places. ``whole`` is false where a
    part of the body is never sent, so that nothing begins.
    """

    body: Callable[[int], Body]
    path: str = CHAT
    reads: bool = False
    queued: bool = False
    whole: bool = True


def chat(words: str, tokens: int = 400, **more: Any) -> Callable[[int], Body]:
    """A conversation that begins in another way for each number, so that nothing is cached."""

    def made(number: int) -> Body:
        messages = [{"role": "user", "content": f"{number} {words}"}]
        return {"messages": messages, "max_tokens": tokens, "ignore_eos": True, **more}

    return made


LONG = "Prince Andrew " * 60
PHASES = {
    "half_a_body": Phase(chat("x"), whole=False),
    "queued": Phase(chat("x"), queued=True),
    "queued_stream": Phase(chat("x", stream=True), queued=True),
    "prompt": Phase(chat(LONG, 100)),
    "prompt_stream": Phase(chat(LONG, 100, stream=True)),
    "embeddings": Phase(lambda number: {"input": [f"{number} {i} {LONG}" for i in range(4)]},
                        "/v1/embeddings"),
    "whole_answer": Phase(chat("x")),
    "several_answers": Phase(chat("x", n=4)),
    "stream": Phase(chat("x", stream=True), reads=True),
    "large_events": Phase(chat("x", stream=True, n=2, logprobs=True, top_logprobs=20), reads=True),
    "messages": Phase(chat("x", stream=True), "/v1/messages", reads=True),
    "responses": Phase(lambda number: {"input": f"{number}", "max_output_tokens": 400},
                       "/v1/responses"),
    "ollama": Phase(lambda number: {"model": "demo", "prompt": f"{number}",
                                    "options": {"num_predict": 400}}, "/api/generate", reads=True),
    "completion": Phase(lambda number: {"prompt": f"{number}", "n_predict": 400,
                                        "ignore_eos": True}, "/completion"),
}  # fmt: skip


def request(path: str, body: Body) -> bytes:
    """A request as it is sent."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


FURTHER = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHos",
    "a request": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a request of work": request(CHAT, chat("x")(0)),
    "no HTTP": b"\x00\xff\r\n\r\n",
    "much": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n"
    + bytes(200_000),
}


def close(client: socket.socket) -> None:
    """End both directions."""
    client.close()


def close_one(client: socket.socket) -> None:
    """Send no more; the socket stays open, and nothing is read."""
    client.shutdown(socket.SHUT_WR)


def reset(client: socket.socket) -> None:
    """End without a word."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


WAYS = (close, close_one, reset)


class Watched:
    """A model whose steps are counted and last; at most ``parallel`` sequences run in one."""

    def __init__(self, model: Model, parallel: int, seconds: float = STEP_SECONDS) -> None:
        self.model = model
        self.seconds = seconds
        self.parallel = parallel
        self.steps = 0
        self._step = model.engine.step

    def __enter__(self) -> Watched:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            for _ in range(PARTS):
                time.sleep(self.seconds / PARTS)
            return self._step(*arguments, **options)

        self.model.engine.step = counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *exception: object) -> None:
        del self.model.engine.step

    @property
    def work(self) -> int:
        """Sequences that wait or run."""
        load = self.model.scheduler_stats()
        return load.waiting + load.running

    def until(self, found: Callable[[], bool]) -> None:
        """Wait. Raises: TimeoutError."""
        end = time.monotonic() + LIMIT
        while not found():
            if time.monotonic() > end:
                raise TimeoutError(f"the expected state was not reached in {LIMIT} s")
            time.sleep(0.001)

    def steps_until(self, work: int) -> int:
        """How many steps begin, after now, with more than ``work`` sequences."""
        before = self.steps
        end = time.monotonic() + LIMIT
        while True:
            seen = self.steps
            if self.work <= work:
                return max(0, seen - before)
            if time.monotonic() > end:
                return 1 << 20
            time.sleep(0.0005)


@contextmanager
def watched_demo(parallel: int = 8, seconds: float = STEP_SECONDS) -> Iterator[Watched]:
    """The demo model, with prompts in several steps."""
    loaded = trinity.load(trinity.demo_model(), threads=1, batch_size=32, max_sequences=parallel)
    with loaded as model, Watched(model, parallel, seconds) as watched:
        yield watched


@contextmanager
def served(model: Model, **options: Any) -> Iterator[int]:
    """The port of a server with the model."""

    async def kept_open() -> None:
        """The model is used again."""

    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models.close = kept_open  # type: ignore[method-assign]
    settings = ServerOptions(port=0, drain=1.0, any_model_name=True, **options)
    with listening(settings.host, settings.port) as listener:
        server = Server(config(make_app(models, settings), settings), settings.max_connections)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                time.sleep(0.002)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(LIMIT)


def connected(port: int) -> socket.socket:
    """A client, which reads little at a time."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(LIMIT)
    client.connect(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def left(watched: Watched, port: int, phase: Phase, chance: random.Random, count: int) -> int:
    """Steps that begin with work of clients after they have all left."""
    holders = []
    if phase.queued:
        for _ in range(watched.parallel):
            holders.append(connected(port))
            holders[-1].sendall(request(CHAT, chat("x", 400)(chance.getrandbits(60))))
        watched.until(lambda: watched.model.scheduler_stats().running == len(holders))
    others = watched.work
    clients = [connected(port) for _ in range(count)]
    for client in clients:
        sent = request(phase.path, phase.body(chance.getrandbits(60)))
        client.sendall(sent if phase.whole else sent[:-1])
    if phase.reads:
        for client in clients:
            client.recv(1)
    elif phase.whole:
        watched.until(lambda: watched.work >= others + count)
    for client in clients:
        client.sendall(FURTHER[chance.choice(list(FURTHER))] if phase.whole else b"")
    time.sleep(chance.random() * 2 * watched.seconds)
    for client in clients:
        chance.choice(WAYS)(client)
    steps = watched.steps_until(others)
    for client in (*clients, *holders):
        client.close()
    watched.until(lambda: not watched.work)
    return steps


def main() -> int:
    """Let clients leave in each phase; print in how many steps their work went on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=", ".join(PHASES))
    options = parser.parse_args()
    names = options.phases or list(PHASES)
    rounds = -(-options.clients // (AT_ONCE * len(names)))
    late = 0
    with watched_demo() as watched, served(watched.model) as port:
        for name in names:
            chance = random.Random(f"{options.seed} {name}")
            found = Counter(
                left(watched, port, PHASES[name], chance, AT_ONCE) for _ in range(rounds)
            )
            late += sum(found[steps] for steps in found if steps > STEPS)
            told = ", ".join(f"{found[steps]} x {steps}" for steps in sorted(found))
            print(f"{name:16} {rounds * AT_ONCE} clients left; rounds x steps: {told}", flush=True)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())
