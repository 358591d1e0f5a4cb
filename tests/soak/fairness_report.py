"""A report of attacks: one JSON line for the first try of each, and a table of such lines.

The environment variable TRINITY_FAIRNESS_REPORT names the file. tests/server/test_fairness.py also
writes it: its own limits are wider and it tries up to three times, but each line compares the first
try with the limits of fairness.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "TRINITY_FAIRNESS_REPORT"
HEAD = (
    "attack | first token ms | gap ms | /health ms | memory MB (after s) | processes, load | missed"
)


def append(row: dict[str, Any]) -> None:
    """Add a line to the report that VARIABLE names, if it names one.

    Several test processes may append to one file: each line is a single write.
    """
    if not (name := os.environ.get(VARIABLE)):
        return
    # pytest-xdist sets this variable in its workers.
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    line = json.dumps({**row, "workers": workers, "load": os.getloadavg()[0]}) + "\n"
    file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def table(path: Path) -> str:
    """The lines of a report as a table in Markdown: each worst figure beside the promised limit."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [f"| {HEAD} |", "| --- " * (HEAD.count("|") + 1) + "|"]
    for row in sorted(rows, key=lambda row: str(row["attack"])):
        figures = " | ".join(
            f"{1000 * seconds:.0f} of {1000 * row['promised'][name]:.0f}"
            for name, seconds in row["worst"].items()
        )
        missed = "; ".join(row["missed"])
        if missed and not row["missed_with_machine"]:
            missed += " (kept with what the machine added)"
        lines.append(
            f"| {row['attack']} | {figures} | {row['memory'] / 2**20:.0f} "
            f"({row['memory_seconds']:.1f}) | {row['workers']}, {row['load']:.1f} | {missed} |"
        )
    kept = sum(not row["missed"] for row in rows)
    with_machine = sum(not row["missed_with_machine"] for row in rows)
    return "\n".join(
        [*lines, "", f"{len(rows)} attacks: {kept} kept every limit, {with_machine} kept them with "
         "what the machine added to a server that nobody attacked"]
    )  # fmt: skip
