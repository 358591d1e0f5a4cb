"""The processes that bench_server.py measures: servers, and the engine without HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from time import perf_counter
from typing import Any

from scripts.bench.raw_http import ask

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 600.0


def environment() -> dict[str, str]:
    """Return this process's environment, with which Python finds the project."""
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class Server:
    """A server in a process of its own, and its URL."""

    def __init__(self, command: Sequence[str], url: str, log: Path) -> None:
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment(),
            )  # fmt: skip
        self.url = url

    def until_ready(self) -> None:
        """Wait until a model is loaded."""
        end = perf_counter() + START_SECONDS
        while perf_counter() < end:
            if self.process.poll() is not None:
                break
            said = re.search(r"listening on (http://[^\s,]+)", self.log.read_text(errors="replace"))
            self.url = self.url or (said[1] if said else "")
            with suppress(OSError, HTTPException, SystemExit):
                if self.url:
                    asyncio.run(ask(self.url, "/health")).body()
                    return
            time.sleep(0.2)
        raise SystemExit(f"the server does not start:\n{self.log.read_text(errors='replace')}")

    def own_bytes(self) -> int:
        """Return the bytes of anonymous memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
        if found is None:
            raise SystemExit("this system does not say how much memory a process has")
        return int(found[1]) << 10

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started(command: Sequence[str], log: Path, url: str = "") -> Iterator[Server]:
    """Start a server, yield it when it is ready, and end it."""
    server = Server(command, url, log)
    try:
        server.until_ready()
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Without:
    """The process that completes conversations without HTTP."""

    def __init__(self, model: Path, threads: int, context: int, log: Path) -> None:
        command = [sys.executable, str(ROOT / "scripts" / "bench" / "model_peer.py"), str(model)]
        self.log = log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--threads", str(threads), "--ctx", str(context)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8",
                env=environment(),
            )  # fmt: skip
        self._answer()

    def answer(self, conversations: list[Any], options: dict[str, Any]) -> tuple[int, float]:
        """Start all completions at once; return their tokens and the seconds that they take."""
        assert self.process.stdin
        request = json.dumps({"conversations": conversations, "options": options})
        print(request, file=self.process.stdin, flush=True)
        found = self._answer()
        return int(found["tokens"]), float(found["seconds"])

    def _answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process ended:\n{self.log.read_text(errors='replace')}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
