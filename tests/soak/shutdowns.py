"""Stop a server again and again while clients do something: it must end within ``--drain`` + 5 s.

    python tests/soak/shutdowns.py --times 500
    python tests/soak/shutdowns.py --times 50 stalled_reader half_a_body

The demo model serves in this process. Each client does its part, then the server is told to end at
a random moment. The exit code is 1 if a server took longer than it may.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import trinity  # noqa: E402
from trinity.server.app import make_app  # noqa: E402
from trinity.server.models import Models  # noqa: E402
from trinity.server.process import Server, config, listening  # noqa: E402
from trinity.server.served import Served  # noqa: E402
from trinity.server.settings import ServerOptions  # noqa: E402

DRAIN = 1.0
MORE = 5.0  # seconds after the drain in which a server must have ended
CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 400, "ignore_eos": True}
# A grammar that takes the compiler seconds until it gives up.
DOUBLING = "root ::= a0\n" + "".join(f'a{i} ::= a{i + 1} a{i + 1} | "{i}"\n' for i in range(60))
DOUBLING += 'a60 ::= "z"\n'

Behaviour = Callable[[int], list[socket.socket]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(act: Behaviour) -> Behaviour:
    """A function of the port that leaves the connections that it returns as they are."""
    BEHAVIOURS[act.__name__] = act
    return act


def connect(port: int, *, buffer: int | None = None) -> socket.socket:
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    return client


def post(port: int, body: dict[str, object], path: str = CHAT, headers: str = "",
         buffer: int | None = None) -> socket.socket:  # fmt: skip
    client, data = connect(port, buffer=buffer), json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    )
    client.sendall(head.encode() + data)
    return client


@behaviour
def nobody(port: int) -> list[socket.socket]:
    return []


@behaviour
def idle_connection(port: int) -> list[socket.socket]:
    client = connect(port)
    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.recv(4096)
    return [client, connect(port)]


@behaviour
def half_a_head(port: int) -> list[socket.socket]:
    client = connect(port)
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
    return [client]


@behaviour
def half_a_body(port: int) -> list[socket.socket]:
    client = connect(port)
    client.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{"
    )
    return [client]


@behaviour
def reading_stream(port: int) -> list[socket.socket]:
    client = post(port, {**LONG, "stream": True})
    client.recv(2000)
    return [client]


@behaviour
def stalled_reader(port: int) -> list[socket.socket]:
    return [post(port, {**LONG, "stream": True, "n": 8, "logprobs": True, "top_logprobs": 20},
                 buffer=1024)]  # fmt: skip


@behaviour
def abandoned_stream(port: int) -> list[socket.socket]:
    client = post(port, {**LONG, "stream": True})
    client.recv(2000)
    client.close()
    return []


@behaviour
def whole_answers(port: int) -> list[socket.socket]:
    return [post(port, {**LONG, "n": 4}) for _ in range(8)]


@behaviour
def slow_grammars(port: int) -> list[socket.socket]:
    return [post(port, {**LONG, "grammar": DOUBLING + f'b{i} ::= "b"\n'}) for i in range(12)]


@behaviour
def kept_stream(port: int) -> list[socket.socket]:
    named = f"X-Conversation-Id: {random.random()}\r\n"
    reading, left = (post(port, {**LONG, "stream": True}, headers=named) for _ in range(2))
    left.close()
    return [reading]


@behaviour
def large_bodies(port: int) -> list[socket.socket]:
    text = "war and peace " * 40_000
    return [post(port, {**LONG, "messages": [{"role": "user", "content": text}]}) for _ in range(4)]


@behaviour
def embeddings(port: int) -> list[socket.socket]:
    texts = ["war and peace " * 20] * 64
    return [post(port, {"input": texts}, "/v1/embeddings") for _ in range(3)]


@behaviour
def half_closed(port: int) -> list[socket.socket]:
    client = post(port, {**LONG, "stream": True})
    client.shutdown(socket.SHUT_WR)
    return [client]


@behaviour
def pipelined(port: int) -> list[socket.socket]:
    client, data = connect(port), json.dumps({**LONG, "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    client.sendall((head.encode() + data) * 4)
    return [client]


def ended_in(model: trinity.Model, act: Behaviour, chance: random.Random) -> float:
    """Seconds that a server takes to end while clients act."""

    async def kept_open() -> None:
        """The model is used again."""

    models = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    models.close = kept_open  # type: ignore[method-assign]
    settings = ServerOptions(port=0, drain=DRAIN)
    with listening(settings.host, settings.port) as listener:
        server = Server(config(make_app(models, settings), settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.002)
        clients = act(listener.getsockname()[1])
        time.sleep(chance.random() * 0.2)
        began = time.monotonic()
        server.should_exit = True
        thread.join(DRAIN + 60)
        seconds = time.monotonic() - began
        for client in clients:
            client.close()
        return seconds


def main() -> int:
    """Run the behaviours; print the slowest end of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("behaviours", nargs="*", metavar="BEHAVIOUR", help=", ".join(BEHAVIOURS))
    options = parser.parse_args()
    late = 0
    with trinity.load(trinity.demo_model(), threads=1) as model:
        for name in options.behaviours or BEHAVIOURS:
            chance = random.Random(f"{options.seed} {name}")
            found = [ended_in(model, BEHAVIOURS[name], chance) for _ in range(options.times)]
            over = sum(seconds > DRAIN + MORE for seconds in found)
            late += over
            print(
                f"{name:20} {len(found)} ends, slowest {max(found):.2f} s, {over} late", flush=True
            )
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())
