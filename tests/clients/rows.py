"""The rows of a client script: calls of a real client program, each with its own assertions.

A script in this folder names the packages of its client in a line ``# packages: ollama==0.6.3``,
declares functions with ``@row("chat")``, and ends with ``main()``. It runs in an environment of its
own (environments.py), where trinity is not installed, so this module needs only the standard
library. It prints one JSON object per row, which test_clients.py reads.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

# `trinity serve` with default settings and published models (servers.py).
URL = os.environ.get("TRINITY_URL", "http://127.0.0.1:8080")
CHAT, DEMO, EMBEDDER, SPEECH = "smol", "demo", "minilm", "whisper"
RERANKER = "ranker"  # a small one with random weights
# A model with a context of 131,072 tokens that writes the texts of script.json.
SCRIPTED_URL = os.environ.get("TRINITY_SCRIPTED_URL", "http://127.0.0.1:8081")
SCRIPTED = "scripted"

Run = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """A row. ``excused``: why it always fails, through no fault of the server.

    docs/clients.md has the same words. The test fails if an excused row is right, so such a row
    must not depend on chance: its temperature is 0, or the client fails before it asks.
    """

    run: Run
    excused: str | None = None


rows: dict[str, Row] = {}


def row(name: str, *, excused: str | None = None) -> Callable[[Run], Run]:
    """Declare a row by the name that it has in docs/clients.md."""

    def declared(run: Run) -> Run:
        assert name not in rows, f"two rows are called {name!r}"
        rows[name] = Row(run, excused)
        return run

    return declared


def main() -> None:
    """Run all rows, or those that the command line names; print a line for each."""
    wanted = sys.argv[1:]
    for name, one in rows.items():
        if wanted and name not in wanted:
            continue
        began, error = time.monotonic(), None
        try:
            one.run()
        except Exception as failure:
            at = traceback.extract_tb(failure.__traceback__)[-1]
            error = f"{type(failure).__name__}: {failure} ({at.filename}:{at.lineno})"[:1000]
        found = {"row": name, "error": error, "excused": one.excused}
        told = json.dumps(found | {"seconds": round(time.monotonic() - began, 2)})
        print(f"\n{told}", flush=True)  # a client may have left an unfinished line
