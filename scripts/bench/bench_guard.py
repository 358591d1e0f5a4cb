"""Compare two reports of bench_peers.py by their ratios; exit status 1 if one fell.

    python scripts/bench/bench_peers.py ... --json new.json
    python scripts/bench/bench_guard.py docs/bench.json new.json --tolerance 0.1

Absolute times depend on the machine and its load, so only ratios within one report are compared: to
llama.cpp's tokens per second, to the read bandwidth, and of a batch to a single sequence.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Key = tuple[str, str, str, str]


def ratios(report: Mapping[str, Any]) -> dict[Key, float]:
    """Return every ratio of a report by shape, test, level and the reference of the ratio."""
    found: dict[Key, float] = {}
    for shape in report["shapes"]:
        rows = shape["results"]
        single = {
            (row["test"], row["isa"]): row["trinity"] for row in rows if row["test"][:2] == "tg"
        }
        for row in rows:
            key = shape["shape"], row["test"], row["isa"]
            if row.get("ratio"):
                found[(*key, "llama.cpp")] = row["ratio"]
            if row.get("bandwidth_share"):
                found[(*key, "bandwidth")] = row["bandwidth_share"]
            test, _, batch = row["test"].partition(" b")
            if batch and (test, row["isa"]) in single:
                found[(*key, "one sequence")] = row["trinity"] / single[test, row["isa"]]
    return found


def fallen(old: Mapping[str, Any], new: Mapping[str, Any], tolerance: float) -> list[str]:
    """Return a line for each ratio that fell below (1 - tolerance) of its earlier value."""
    before, after = ratios(old), ratios(new)
    return [
        f"{' '.join(key[:3])}: {after[key]:.2f} of {key[3]}, was {before[key]:.2f}"
        for key in before
        if key in after and after[key] < (1 - tolerance) * before[key]
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.1, help="default 0.1")
    options = parser.parse_args(arguments)
    old, new = (json.loads(path.read_text("utf-8")) for path in (options.old, options.new))
    common = ratios(old).keys() & ratios(new).keys()
    if not common:
        print("the reports have no test in common", file=sys.stderr)
        return 2
    lines = fallen(old, new, options.tolerance)
    print("\n".join(lines) or f"none of {len(common)} ratios fell")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
