"""Servers to attack: command-line processes with a random tiny model."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak.attacks.images import asked, noise
from tests.soak.attacks.target import ATTACKERS_KEY
from tests.soak.ordinary_client import KEY, chat, health

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Kind:
    """How a server is started."""

    options: tuple[str, ...] = ()
    files: int | None = None  # how many it may have open
    model: str = "tiny.gguf"
    first: Callable[[], tuple[dict[str, Any], ...]] = lambda: (
        {},
        {"response_format": {"type": "json_object"}},
    )
    """Fields of chats that are answered before an attack, so that all processes have started."""
    python: tuple[str, ...] = ("-m", "trinity")


STATE = ("--state", "{folder}/state", "--speech-model", "whisper-1={models}/whisper.gguf")
KINDS = {
    "usual": Kind(STATE),
    "few_files": Kind(files=128),
    "slots": Kind(("--slot-save-path", "{folder}/slots")),
    "two_models": Kind(("--model", "other={models}/other.gguf")),
    "vision": Kind(model="vision", first=lambda: ({}, asked([noise(1000, 1000)]))),
}


class Server:
    """A server of the command line in a process of its own."""

    def __init__(self, models: Path, kind: Kind, folder: Path) -> None:
        paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
        self.log = folder / "log"
        options = [one.format(folder=folder, models=models) for one in kind.options]
        keys = [text for key in (KEY, ATTACKERS_KEY) for text in ("--api-key", key)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *kind.python, "serve", "--port", "0", "-t", "1",
                 "--model", str(models / kind.model), *keys, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )  # fmt: skip
        if kind.files is not None:
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (kind.files, kind.files))
        self.port = 0

    def until_ready(self) -> None:
        """Wait until the model is loaded. Raises: RuntimeError where the process ends."""
        while self.process.poll() is None:
            said = re.search(r"listening on http://\S+:(\d+)", self.log.read_text(errors="replace"))
            if said:
                self.port = int(said[1])
                if health(self.port)[0] == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server does not start:\n{self.log.read_text(errors='replace')}")

    def memory(self) -> int:
        """Resident bytes of the process and those that it has started."""
        found, waiting = 0, [self.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                found += resident(pid)
                tasks = Path(f"/proc/{pid}/task").iterdir()
                for task in tasks:
                    waiting += map(int, (task / "children").read_text().split())
            except OSError:
                continue  # it has ended
        return found

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def resident(pid: int) -> int:
    """Bytes of memory of a process, its part of those that it shares with others."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


@contextmanager
def running(models: Path, kind: Kind) -> Iterator[Server]:
    """A server that is ready and has answered once, until it is left."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "slots").mkdir()
        server = Server(models, kind, Path(folder))
        try:
            server.until_ready()
            for more in kind.first():
                for _ in range(3):
                    chat(server.port, more)
            yield server
        finally:
            server.close()


def write_models(folder: Path) -> None:
    """Write the random models: tiny.gguf, other.gguf, whisper.gguf, and the folder vision."""
    from scripts.models.make_synthetic import SHAPES, write_model
    from tests.fuzzing.live_server import sound_whisper
    from tests.images.small_vision_models import write_directory

    for name in ("tiny", "other"):
        write_model(folder / f"{name}.gguf", SHAPES["tiny"])
    (folder / "whisper.gguf").write_bytes(sound_whisper())
    write_directory("gemma3", folder / "vision")
