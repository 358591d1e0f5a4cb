"""A table of calls of a client library: each is run, and passes or fails by its own assertions."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Run = Callable[[Any, str], object]


@dataclass
class Calls:
    """Functions of (client, model), by name."""

    found: dict[str, Run] = field(default_factory=dict)

    def __call__(self, name: str) -> Callable[[Run], Run]:
        """Put a function into the table."""

        def put(run: Run) -> Run:
            assert name not in self.found, name
            self.found[name] = run
            return run

        return put

    def run(self, client: Any, model: str, only: Sequence[str] = ()) -> dict[str, str]:
        """Run all calls, or ``only`` those; print a line for each. The failed with their error."""
        failed = {}
        for name, run in self.found.items():
            if only and name not in only:
                continue
            began = time.monotonic()
            try:
                run(client, model)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
            seconds = time.monotonic() - began
            print(f"{'FAIL' if name in failed else 'pass'}  {seconds:6.2f} s  {name}", flush=True)
            if name in failed:
                print(f"      {failed[name][:500]}")
        count = len(only) or len(self.found)
        print(f"{count - len(failed)} of {count} calls passed")
        return failed


def arguments(description: str) -> argparse.Namespace:
    """The command line that all scripts have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--base-url", default="http://127.0.0.1:8080", help="without /v1")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("calls", nargs="*", help="run only these")
    return parser.parse_args()


def refused(kind: type[Exception], call: Callable[[], object], *words: str) -> Any:
    """The exception of that kind that a call raises, whose message has these words."""
    found: Exception | None = None
    try:
        call()
    except kind as error:
        found = error
    assert found is not None, f"{kind.__name__} was not raised"
    for word in words:
        assert word in str(found), f"{word!r} is not in {found}"
    return found
