"""A server on a Ray cluster of its own, and what tests do with it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.ray.processes import descendants
from trinity.loading import chat_model

HAS_RAY = importlib.util.find_spec("ray") is not None
REPLICA = b"ray::ServeReplica:trinity:replica"
SECONDS = 240  # that starting Ray may take on a busy machine


class Running:
    """A server of two replicas."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.client = httpx.Client(base_url=url, timeout=SECONDS)

    def replicas(self) -> list[int]:
        return descendants(self.process.pid, REPLICA)

    def wait(self, count: int = 2) -> list[int]:
        """Wait until there are so many replicas."""
        limit = time.monotonic() + SECONDS
        while len(found := self.replicas()) < count:
            assert time.monotonic() < limit, found
            time.sleep(0.05)
        return found

    def kill(self, replica: int) -> None:
        """Kill a replica; return when it is gone."""
        os.kill(replica, signal.SIGKILL)
        while replica in self.replicas():
            time.sleep(0.005)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def streamed(self, question: str, **body: Any) -> str:
        """The text of a streamed response."""
        text = ""
        body = {**body, "stream": True, "messages": [{"role": "user", "content": question}]}
        with self.client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    assert "error" not in event, event
                    text += "".join(c["delta"].get("content") or "" for c in event["choices"])
        return text


@contextlib.contextmanager
def served(log: Path, *arguments: str) -> Iterator[Running]:
    """A server of the demo model with two replicas; at the end all of its processes must end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "trinity", "serve", "--model", f"demo={chat_model()}", "--port",
        str(port), "--ray", "--replicas", "2", "--cores", "1", "--ctx", "1024", "--drain", "5",
        *arguments,
    ]  # fmt: skip
    with log.open("wb") as said:
        process = subprocess.Popen(command, stderr=said, stdout=said)
    try:
        limit = time.monotonic() + SECONDS
        while "listening on" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.2)
        server = Running(process, f"http://127.0.0.1:{port}")
        with server.client:
            yield server
        left = descendants(process.pid, b"")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
        time.sleep(1)
        assert not [one for one in left if Path(f"/proc/{one}").exists()]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
