"""A process that opens files, each in a fork of its own, and reports the cost.

One line of JSON in: [action, path]. One line out: the outcome, bytes of memory beyond those of the
process at its start, and seconds of processor time.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable

import trinity
from tests.tiny_models import write_tiny_model
from trinity.cli.inspect import describe
from trinity.cli.terminal import json_line
from trinity.errors import TrinityError
from trinity.formats.imatrix import read_imatrix
from trinity.formats.tl_config import read_tl_config
from trinity.loading import open_weights
from trinity.tools.convert import convert
from trinity.tools.verify import verify

MOST_SECONDS = 60


def load(path: str) -> None:
    with trinity.load(path, threads=1) as model:
        model.generate("a", max_tokens=1, temperature=0.0)


def chat(path: str) -> None:
    with trinity.load(path, threads=1) as model:
        model.chat([{"role": "user", "content": "a"}], max_tokens=1, temperature=0.0)


def inspect(path: str) -> None:
    json_line(describe(path, open_weights(path)))


def quantize(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trinity.quantize(path, os.path.join(folder, "q.gguf"), "Q8_0", threads=1)


def to_gguf(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        convert(path, os.path.join(folder, "c.gguf"), "f16")


ACTIONS: dict[str, Callable[[str], object]] = {
    "load": load,
    "chat": chat,
    "inspect": inspect,
    "verify": lambda path: verify(open_weights(path)),
    "quantize": quantize,
    "convert": to_gguf,
    "imatrix": read_imatrix,
    "tl_config": read_tl_config,
}


def measured(action: str, path: str) -> list[object]:
    """Outcome, bytes, seconds, of a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            ACTIONS[action](path)
            outcome = "ok"
        except TrinityError as error:
            outcome = f"refused: {error}"[:300]
        except BaseException as error:
            outcome = f"raised {type(error).__name__}: {error}"[:300]
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = after.ru_utime + after.ru_stime
        reply = [outcome, 1024 * (after.ru_maxrss - before), seconds]
        os.write(write, json.dumps(reply).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        reply = pipe.read()
    _, status, _ = os.wait4(child, 0)
    return json.loads(reply) if reply else [f"died with status {status}", 0, 0.0]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tiny.gguf")
        write_tiny_model(path)
        load(path)  # so that kernels and libraries are there before anything is measured
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
