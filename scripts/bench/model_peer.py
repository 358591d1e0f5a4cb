"""The engine's side of bench_server.py: a process that completes conversations without HTTP.

    python scripts/bench/model_peer.py model.gguf --threads 2 --ctx 8192

Reads a JSON object per line from standard input, {"conversations": a list of lists of messages,
"options": GenerationOptions}, has a thread call ``Model.chat`` for each conversation, all at once,
and answers {"seconds", "tokens"} on standard output. Its first line is {}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

import trinity  # noqa: E402
from trinity.model import Model  # noqa: E402
from trinity.server.prepared import CHATML  # noqa: E402


def answered(model: Model, conversations: list[Any], options: dict[str, Any]) -> dict[str, float]:
    """Start all completions at once; return their time and their tokens."""
    template = None if model.chat_templates else CHATML

    def answer(place: int) -> int:
        found = model.chat(conversations[place], template=template, seed=place, **options)
        return len(found.token_ids)

    started = perf_counter()
    with ThreadPoolExecutor(len(conversations)) as pool:
        tokens = sum(pool.map(answer, range(len(conversations))))
    return {"seconds": perf_counter() - started, "tokens": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--ctx", type=int, required=True)
    given = parser.parse_args()
    # What a library prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with trinity.load(given.model, threads=given.threads, context_length=given.ctx) as model:
        print("{}", file=answers)
        for line in sys.stdin:
            print(json.dumps(answered(model, **json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
