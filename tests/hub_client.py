"""A process that opens models by name; huggingface_hub reads its environment only once.

As a program it reads lines of JSON, {"name", "what", "environment"} or {"command", "environment"},
and answers each with a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Opened:
    """What came of a name: where the model lies, or the error; lines that were said."""

    path: str
    error: str
    kind: str
    said: list[str]
    tensors: list[str]


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """The environment of a process whose hub is ``endpoint`` and whose cache lies in ``home``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE"))}
    paths = [str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "*",
        **more,
    }


class Client:
    """The process; ``open`` is ``trinity.open_weights`` there, ``load_tokenizer`` its namesake.

    What the latter opened has the texts of the tokens in the place of tensors. ``run`` is the
    command line.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=variables,
        )

    def open(self, name: str, **variables: str) -> Opened:
        return Opened(**self._asked({"name": name, "what": "open", "environment": variables}))

    def load_tokenizer(self, name: str, **variables: str) -> Opened:
        return Opened(**self._asked({"name": name, "what": "tokenizer", "environment": variables}))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command."""
        code, out, errors = self._asked({"command": arguments, "environment": {}})
        return code, out, errors

    def _asked(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


def answer(name: str, what: str) -> dict[str, Any]:
    import trinity
    from trinity.errors import TrinityError

    said: list[str] = []
    found: dict[str, Any] = {"path": "", "error": "", "kind": "", "said": said, "tensors": []}
    try:
        if what == "tokenizer":
            tokenizer = trinity.load_tokenizer(name, notice=said.append)
            return {**found, "tensors": [tokenizer.token_text(i) for i in range(8)]}
        with closing(trinity.open_weights(name, notice=said.append)) as provider:
            return {**found, "path": provider.path, "tensors": provider.tensor_names()}
    except TrinityError as error:
        kind = next(k for k in type(error).__mro__ if not k.__name__.startswith("_"))
        return {**found, "error": str(error), "kind": kind.__name__}
    except Exception as error:
        return {**found, "error": repr(error), "kind": "not a TrinityError"}


def outcome(command: list[str]) -> list[Any]:
    from typer.testing import CliRunner

    from trinity.cli.application import application

    result = CliRunner().invoke(application(), command)
    return [result.exit_code, result.stdout, result.stderr]


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        before = dict(os.environ)
        os.environ.update(request["environment"])
        command = request.get("command")
        found = outcome(command) if command else answer(request["name"], request["what"])
        print(json.dumps(found), flush=True)
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    main()
