"""Count the Python files and functions that a token and an HTTP chat request pass through.

    python scripts/bench/count_files.py            # a token in the steady state, a chat request
    python scripts/bench/count_files.py --list     # also each file with its functions

A profile hook records every call of a function of trinity and its kernels in all threads, so the
numbers do not depend on the machine. The request goes to the ASGI application without a socket.
tests/scripts/bench/test_count_files.py limits the numbers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import trinity
from trinity.server.app import make_app
from trinity.server.models import Models, Served

ROOT = Path(__file__).resolve().parents[2]
SOURCES = tuple(f"{ROOT / folder}/" for folder in ("trinity", "kernels"))
KERNELS = "kernels/"
TOKENS, STEADY = 80, 40  # tokens to generate; steps before the steady state
REQUESTS = 11  # to send; the first two are not counted
BODY = {
    "model": "demo",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 2,
    "temperature": 0,
}


class Calls:
    """Records calls of this project's functions, in order."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Record a call; a profile hook."""
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            self.codes.append(frame.f_code)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record the calls of this thread and of threads that start in the meantime."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def files_of(codes: Sequence[CodeType]) -> dict[str, Counter[str]]:
    """Return the number of calls of each function, by file."""
    by_file: dict[str, Counter[str]] = {}
    for code in codes:
        path = str(Path(code.co_filename).relative_to(ROOT))
        by_file.setdefault(path, Counter())[code.co_qualname] += 1
    return by_file


def outside_kernels(by_file: Iterable[str]) -> list[str]:
    """Return the sorted files that are not part of the kernels."""
    return sorted(path for path in by_file if not path.startswith(KERNELS))


def count(title: str, codes: Sequence[CodeType], *, listed: bool) -> None:
    """Print the number of files, functions, calls and changes of file."""
    by_file = files_of(codes)
    files = outside_kernels(by_file)
    functions = sum(len(by_file[path]) for path in files)
    calls = sum(by_file[path].total() for path in files)
    changes = sum(a.co_filename != b.co_filename for a, b in pairwise(codes))
    print(
        f"{title}: {len(files)} files, {functions} functions, {calls} calls, "
        f"{changes} changes of file; {len(by_file) - len(files)} files of the kernels"
    )
    for path in sorted(by_file) if listed else ():
        print(f"  {path}: {', '.join(f'{name} {n}' for name, n in by_file[path].items())}")


def token_walks(path: str) -> list[Sequence[CodeType]]:
    """Return the calls of steps of the engine, each to the next, in a stream of one request."""
    calls = Calls()
    with calls.noted(), trinity.load(path) as model:
        for _ in range(2):  # in the second text every token is decoded for a second time
            begun = len(calls.codes)
            for _ in model.stream(
                "Once upon a time", max_tokens=TOKENS, temperature=0, speculative=False
            ):
                pass
    codes = calls.codes[begun:]
    starts = [i for i, code in enumerate(codes) if code.co_qualname == "EngineLoop._step"]
    return [codes[start:end] for start, end in pairwise(starts[STEADY:])]


async def request_walks(path: str) -> list[Sequence[CodeType]]:
    """Return the calls of chat requests, each from its first byte to its last."""
    calls, walks = Calls(), list[Sequence[CodeType]]()
    with calls.noted():
        app = make_app(Models([Served("demo", "demo", lambda: trinity.load(path))]))
        async with app.router.lifespan_context(app):
            for _ in range(REQUESTS):
                start = len(calls.codes)
                status = await _post(app, "/v1/chat/completions", json.dumps(BODY).encode())
                if status != 200:
                    raise SystemExit(f"the chat request got status {status}")
                walks.append(calls.codes[start:])
    return walks[2:]


def median(walks: list[Sequence[CodeType]]) -> Sequence[CodeType]:
    """Return the median by files: in some walks the engine checks its file as well."""
    walks.sort(key=lambda walk: len({code.co_filename for code in walk}))
    return walks[len(walks) // 2]


async def _post(app: Any, path: str, body: bytes) -> int:
    sent: list[dict[str, Any]] = []
    unread = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not unread:
            await asyncio.Event().wait()  # the client stays
        return unread.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return int(sent[0]["status"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print each file with its functions")
    listed = parser.parse_args().list
    count("token", median(token_walks(trinity.demo_model())), listed=listed)
    count("chat request", median(asyncio.run(request_walks(trinity.chat_model()))), listed=listed)
