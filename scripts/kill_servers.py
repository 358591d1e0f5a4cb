"""Kill `trinity serve --state` again and again, and compare streams that are resumed.

    python scripts/kill_servers.py 200
    python scripts/kill_servers.py 200 --clients 4 -- --model build/model.gguf --batch-invariant

Clients stream answers under names of their own (X-Conversation-Id) and, when the connection ends
before the stream does, ask again for what follows the last event that they have (Last-Event-ID).
Meanwhile the server is killed (SIGKILL) at random moments and started again, so many times. Each
answer's text and the hash of its tokens must be those of the same request without an interruption,
its events numbered without a gap, all under one id. What follows "--" are options of
`trinity serve`. It ends with status 1 where something differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.bench_processes import Server, free_port  # noqa: E402

CHAT = "/v1/chat/completions"
USERS = ("Who was Prince Andrew?", "What is war?", "Tell of Moscow.", "Why did Natasha sing?")


@dataclass
class Stream:
    """One stream's events, by what was received of them."""

    body: Any
    name: str
    events: list[str] = field(default_factory=list)
    resumed: int = 0

    @property
    def ended(self) -> bool:
        """Whether the last event has come."""
        return bool(self.events) and self.events[-1] == "[DONE]"

    def text(self) -> str:
        """The answer's text."""
        found = (json.loads(one)["choices"][0]["delta"] for one in self.events[:-1])
        return "".join(one.get("content") or "" for one in found)

    def marks(self) -> tuple[set[Any], str]:
        """Ids and times of all events, of which there must be one; the hash of the tokens."""
        found = [json.loads(one) for one in self.events[:-1]]
        return {(one["id"], one["created"]) for one in found}, found[-1]["choices"][0]["token_hash"]

    async def go_on(self, client: httpx.AsyncClient) -> None:
        """Ask for it, or for the rest of it, until the connection ends."""
        headers = {"X-Conversation-Id": self.name}
        had = bool(self.events)
        if had:
            headers["Last-Event-ID"] = str(len(self.events))
        where: Any = ("POST", CHAT, self.body)
        if had and self.resumed % 2:  # as a browser's EventSource does it
            where = ("GET", f"/v1/stream?conv_id={self.name}", None)
        method, path, body = where
        async with client.stream(method, path, json=body, headers=headers) as reply:
            if reply.status_code != 200:
                await reply.aread()
                if reply.status_code not in (503, 409, 408):
                    raise SystemExit(f"{self.name}: {reply.status_code} {reply.text}")
                await asyncio.sleep(0.1)
                return
            self.resumed += had
            rest = ""
            async for piece in reply.aiter_text():
                *whole, rest = (rest + piece).split("\n\n")
                for event in whole:
                    self.take(event)

    def take(self, event: str) -> None:
        """One event, of which a part may not have come."""
        number, _, data = event.partition("\n")
        if not number.startswith("id: "):
            return  # a comment, or an error that asking again may mend
        if number != f"id: {len(self.events) + 1}":
            raise SystemExit(f"{self.name}: {number} comes after {len(self.events)} events")
        self.events.append(data.removeprefix("data: "))


async def whole(url: str, stream: Stream) -> None:
    """Ask until all has come."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        while not stream.ended:
            with suppress(httpx.TransportError):
                await stream.go_on(client)
            await asyncio.sleep(0.02)


def body_of(chance: random.Random, tokens: int) -> Any:
    """A request whose answer can be made again."""
    return {
        "messages": [{"role": "user", "content": chance.choice(USERS)}], "stream": True,
        "max_tokens": chance.randrange(tokens // 2, tokens), "seed": chance.randrange(2**32),
        "temperature": chance.choice((0, 0.8, 1.5)), "ignore_eos": True,
    }  # fmt: skip


class Keeper:
    """A server that is killed and started again."""

    def __init__(self, options: list[str], folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "log"
        self._command = [sys.executable, "-m", "trinity", "serve", "--port", str(self.port),
                         "--state", str(folder / "state"), *options]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, and wait until the model is loaded."""
        self.server = Server(self._command, self.url, self._log)
        self.server.until_ready()

    def kill(self) -> None:
        """End it as a fault would."""
        self.server.process.kill()
        self.server.process.wait()


async def compared(kills: int, clients: int, tokens: int, seconds: float, keeper: Keeper) -> int:
    """Kill so many times while clients stream; how many streams were resumed and compared."""
    chance = random.Random(11)
    streams: list[Stream] = []
    running: set[asyncio.Task[None]] = set()

    def begin() -> None:
        stream = Stream(body_of(chance, tokens), f"stream {len(streams)}")
        streams.append(stream)
        task = asyncio.create_task(whole(keeper.url, stream))
        running.add(task)
        task.add_done_callback(running.discard)

    done = 0
    while done < kills:
        while len(running) < clients:
            begin()
        wait = chance.random() * seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while True:
                    await asyncio.wait(set(running), return_when=asyncio.FIRST_COMPLETED)
                    for task in [one for one in running if one.done()]:
                        task.result()
                    while len(running) < clients:
                        begin()
                    await asyncio.sleep(0)
        async with asyncio.timeout(60):  # a slow machine has sent nothing by then
            while not done and running and not any(one.events and not one.ended for one in streams):
                await asyncio.sleep(0.005)
        await asyncio.to_thread(keeper.kill)
        await asyncio.to_thread(keeper.start)
        done += 1
    await asyncio.gather(*running)
    broken = [one for one in streams if one.resumed]
    for stream in broken:
        again = Stream(stream.body, f"{stream.name} unbroken")
        await whole(keeper.url, again)
        names, token_hash = stream.marks()
        if (stream.text(), token_hash) != (again.text(), again.marks()[1]) or len(names) != 1:
            raise SystemExit(f"{stream.name} differs: {stream.text()!r}, {again.text()!r}")
    print(f"{kills} kills, {len(streams)} streams, {len(broken)} of them resumed "
          f"{sum(one.resumed for one in broken)} times: all as without", flush=True)  # fmt: skip
    return len(broken)


def main() -> None:
    """Kill, compare, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("kills", type=int)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=900, help="most tokens of an answer")
    parser.add_argument("--seconds", type=float, default=1.0, help="most between two kills")
    parser.add_argument("server", nargs="*", help="options of trinity serve, after --")
    given = parser.parse_args()
    began = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(given.server, Path(folder))
        try:
            asyncio.run(compared(given.kills, given.clients, given.tokens, given.seconds, keeper))
        finally:
            keeper.kill()
    print(f"{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
