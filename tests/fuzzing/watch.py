"""Starts worker processes, watches for crashes, hangs and memory, and collects findings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzzing.case import STAGES
from tests.fuzzing.worker import PACKAGES, State

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.1
GROWN_BYTES = 8 << 30


@dataclass
class Finding:
    """A kind of finding: its number and first case."""

    target: str
    seed: int
    text: str
    count: int = 1


@dataclass
class Result:
    """Counters by target and stage, findings by group."""

    counts: dict[str, dict[str, int]]
    findings: dict[str, Finding] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """The number of all cases."""
        return sum(row["cases"] for row in self.counts.values())

    def add(self, group: str, target: str, seed: int, text: str) -> None:
        """Record a finding; print the first of a group at once."""
        if group in self.findings:
            self.findings[group].count += 1
            return
        self.findings[group] = Finding(target, seed, text)
        print(f"FOUND {group}\n  --target {target} --seed {seed}\n{_indented(text)}", flush=True)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-25:])


class Worker:
    """A process and its seeds."""

    def __init__(
        self, number: int, seeds: range, names: Sequence[str], folder: Path, main: Sequence[str]
    ) -> None:
        self.seeds, self.names, self.main = seeds, list(names), list(main)
        self.folder = folder / str(number)
        self.folder.mkdir()
        self.state = State(self.folder / "state", names, create=True)
        self.done = 0
        self.process: subprocess.Popen[str] | None = None
        self._read = 0
        self.start(seeds.start)

    def start(self, first: int) -> None:
        """Continue at seed ``first``."""
        self.next = first
        if first >= self.seeds.stop:
            self.process = None
            return
        self.state.end(0)
        arguments = [
            str(first),
            str(self.seeds.step),
            str(self.seeds.stop),
            ",".join(self.names),
            str(self.folder),
        ]
        lines = open(self.folder / "lines", "a")  # noqa: SIM115
        with lines, open(self.folder / "errors", "w") as errors:
            self.process = subprocess.Popen(
                [*self.main, *arguments],
                stdout=lines,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def lines(self) -> list[dict[str, object]]:
        """Return what the process has written since the last call."""
        with open(self.folder / "lines") as file:
            file.seek(self._read)
            text = file.read()
        whole, _, _ = text.rpartition("\n")
        self._read += len((whole + "\n").encode()) if whole else 0
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def last_words(self) -> str:
        """Return stacks and messages of a process that has ended."""
        parts = [(self.folder / name) for name in ("stack", "errors")]
        return "\n".join(p.read_text(errors="replace")[-4000:] for p in parts if p.exists())

    def resident(self) -> int:
        """Return the resident memory of the process."""
        try:
            with open(f"/proc/{self.process.pid}/statm") as file:  # type: ignore[union-attr]
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def kill(self) -> None:
        """Request its stacks, then kill it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        self.process.kill()
        self.process.wait()


def watch(
    names: Sequence[str], shares: Sequence[str], first: int, last: int, *, workers: int,
    seconds: float | None, hang_seconds: float, main: Sequence[str],
    progress: Callable[[Result], None] = lambda result: None,
) -> Result:  # fmt: skip
    """Run seeds ``first`` to ``last`` by that many workers, at most that many seconds.

    ``shares`` is the schedule: the target of seed s is ``shares[s % len(shares)]``.
    """
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="trinity-fuzz-", dir=shared))
    result = Result({name: {} for name in names})
    begun = shown = time.monotonic()
    crew: list[Worker] = []
    try:
        for number in range(workers):
            crew.append(Worker(number, range(first + number, last, workers), names, folder, main))
        while any(w.process for w in crew):
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            for worker in crew:
                _look_at(worker, shares, result, hang_seconds, now)
                if seconds is not None and now - begun > seconds:
                    worker.state.stop()
                    worker.seeds = range(worker.seeds.start, 0, worker.seeds.step)
            if now - shown > 30:
                shown = now
                _sum_up(result, crew, begun)
                progress(result)
        _sum_up(result, crew, begun)
        return result
    finally:
        for worker in crew:
            if worker.process is not None:
                worker.process.kill()
                worker.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _look_at(
    worker: Worker, shares: Sequence[str], result: Result, hang: float, now: float
) -> None:
    if worker.process is None:
        return
    _, seed, start, done = worker.state.read()
    code = worker.process.poll()
    recycled = None
    for line in worker.lines():
        if "recycle" in line:
            recycled = int(str(line["recycle"]))
        else:
            result.add(
                str(line["group"]), str(line["target"]), int(str(line["seed"])), str(line["text"])
            )
    target = shares[seed % len(shares)]
    if code is None:
        if start and now - start > hang:
            worker.kill()
            result.add(f"hang in {target}", target, seed, worker.last_words())
            worker.start(seed + worker.seeds.step)
        elif start and worker.resident() > GROWN_BYTES:
            worker.kill()
            result.add(
                f"memory beyond {GROWN_BYTES >> 30} GiB in {target}",
                target,
                seed,
                worker.last_words(),
            )
            worker.start(seed + worker.seeds.step)
    elif code == 0:
        worker.start(worker.seeds.stop if recycled is None else recycled + worker.seeds.step)
    else:
        if not start and not done:
            raise RuntimeError(
                f"a worker ended with {code} before its first case:\n{worker.last_words()}"
            )
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        result.add(
            f"{name} in {target}: {_deepest(worker.last_words())}",
            target,
            seed,
            worker.last_words(),
        )
        worker.start(seed + worker.seeds.step)


def _deepest(stack: str) -> str:
    """Return the first line of trinity in a stack of faulthandler."""
    for line in stack.splitlines():
        for package in PACKAGES:
            if f"{package}/" in line and "File" in line:
                return package.name + line.strip().rpartition(str(package))[2]
    return ""


def _sum_up(result: Result, crew: Sequence[Worker], begun: float) -> None:
    for name, row in result.counts.items():
        for column in ("cases", *STAGES, "microseconds"):
            row[column] = sum(worker.state.count(name, column) for worker in crew)
    result.seconds = time.monotonic() - begun


def table(result: Result) -> str:
    """Format the counts of a run."""
    columns = [c for c in STAGES if any(row[c] for row in result.counts.values())]
    lines = [["target", "cases", *columns, "ms"]]
    for name, row in result.counts.items():
        if row["cases"]:
            mean = row["microseconds"] / row["cases"] / 1000
            lines.append([name, *(f"{row[c]:,}" for c in ("cases", *columns)), f"{mean:.2f}"])
    total = {
        c: sum(row[c] for row in result.counts.values())
        for c in ("cases", *columns, "microseconds")
    }
    mean = total["microseconds"] / max(1, total["cases"]) / 1000
    lines.append(["all", *(f"{total[c]:,}" for c in ("cases", *columns)), f"{mean:.2f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    for first, *others in lines:
        cells = [cell.rjust(w) for cell, w in zip(others, widths[1:], strict=True)]
        rows.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(rows)
