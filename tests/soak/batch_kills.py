"""Kill `trinity batch --ray` and its replicas, continue, and compare with one process.

    python tests/soak/batch_kills.py --rows 2000

The command is killed three times, after a fifth, nearly a half and two thirds of the rows; some
rows earlier a replica is killed. Each time the same command continues. Exit status 1 if a row is
missing, is there twice, or differs from that of one process.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT), str(ROOT / "kernels")]
sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]

from tests.cli.test_batch import row, texts, write  # noqa: E402
from tests.ray.processes import descendants  # noqa: E402
from trinity.loading import chat_model  # noqa: E402

PARTS = (0.2, 0.45, 0.701)  # of the rows, after which the command is killed
EARLIER = 0.1  # of the rows, before which a replica is killed
RAY = ("--ray", "--replicas", "2", "--cores", "1", "--at-once", "8")


def command(source: Path, out: Path, *more: str) -> list[str]:
    """Return the command of a batch."""
    model = ("--model", chat_model(), "--threads", "1")
    return [sys.executable, "-m", "trinity", "batch", str(source), str(out), *model, *more]


def lines(out: Path) -> int:
    """Return how many rows are answered."""
    return out.read_bytes().count(b"\n") if out.exists() else 0


def killed(given: Sequence[str], out: Path, rows: int, earlier: int) -> None:
    """Run a command until so many rows are answered; kill a replica, then the command."""
    began, replica = time.monotonic(), 0
    with subprocess.Popen(given, stderr=subprocess.DEVNULL) as process:
        while (count := lines(out)) < rows:
            if process.poll() is not None:
                raise SystemExit(f"the command ended with {process.returncode} after {count} rows")
            if not replica and count >= rows - earlier:
                replica = next(iter(descendants(process.pid, b"ray::Worker")), 0)
                if replica:
                    os.kill(replica, signal.SIGKILL)
                    print(f"replica killed after {count} rows", flush=True)
            time.sleep(0.002)
        process.kill()
    print(f"killed after {lines(out)} rows, {time.monotonic() - began:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    rows = parser.parse_args().rows
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder) / "in.jsonl", [row(number) for number in range(rows)])
        alone, out = Path(folder) / "alone", Path(folder) / "ray"
        began = time.monotonic()
        subprocess.run(command(source, alone), stderr=subprocess.DEVNULL, check=True)
        print(f"one process: {time.monotonic() - began:.0f} s", flush=True)
        for part in PARTS:
            killed(command(source, out, *RAY), out, round(part * rows), round(EARLIER * rows))
        began = time.monotonic()
        subprocess.run(command(source, out, *RAY), stderr=subprocess.DEVNULL, check=True)
        print(f"ended, {time.monotonic() - began:.0f} s", flush=True)
        found, wanted = texts(out), texts(alone)
        print(f"{len(found)} rows, {lines(out)} lines; equal: {found == wanted}", flush=True)
        return int(found != wanted or lines(out) != rows)


if __name__ == "__main__":
    sys.exit(main())
