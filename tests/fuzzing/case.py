"""A fuzzing case: its random generator, files, progress and cost."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.processor_time import slowness
from trinity.errors import TrinityError

T = TypeVar("T")

# How far cases came; each is counted once per case. Figures of a run name them.
STAGES = (
    "refused", "opened", "loaded", "token", "verified", "quantized", "tokenized", "rendered",
    "converted", "read",
)  # fmt: skip

# The rule for any file of any kind, until the first token.
MEMORY_FACTOR, MEMORY_BYTES = 3, 300_000_000
SECONDS, SECONDS_PER_BYTE = 2.0, 1 / 100_000_000
TOOLS = ("verified", "quantized", "converted")  # they come after it, and may take longer
TOOL_FACTOR = 5
LONGEST_MESSAGE = 20_000


class Finding(Exception):  # noqa: N818 - what it is called in the reports
    """A defect that is not an exception of the code under test."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


class Case:
    """The input of a target. ``rng`` depends only on target and seed; ``folder`` is empty."""

    def __init__(self, target: str, seed: int, folder: Path) -> None:
        self.rng = random.Random(f"{target} {seed}")
        self.seed = seed
        self.folder = folder
        self.num_bytes = 0
        self.reached: set[str] = set()
        self.compiled = False
        self.refusals: list[str] = []
        self.seconds: dict[str, float] = {}

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the case; its size raises the limits of cost."""
        path = self.folder / name
        path.write_bytes(content)
        self.num_bytes += len(content)
        return path

    def progress(self, line: str) -> None:
        """Receive the engine's progress; a case that compiles kernels has no time limit."""
        self.compiled |= "compiling" in line

    def attempt(
        self, stage: str, function: Callable[..., T], *args: object, **options: object
    ) -> T | None:
        """Return the function's result, or None if it raises a TrinityError.

        Other exceptions are not caught.
        """
        start = time.process_time()
        try:
            result = function(*args, **options)
        except TrinityError as error:
            self.refusals.append(str(error))
            self.reached.add("refused")
            check_refusal(error)
            return None
        finally:
            budget = "first token" if stage in ("opened", "loaded", "token") else stage
            self.seconds[budget] = self.seconds.get(budget, 0.0) + time.process_time() - start
        self.reached.add(stage)
        return result

    def check_cost(self, grown: int) -> None:
        """Raise Finding if the case cost more than its files justify."""
        allowed = MEMORY_FACTOR * self.num_bytes + MEMORY_BYTES
        if grown > allowed:
            raise Finding(
                "memory",
                f"{grown:,} bytes more for files of {self.num_bytes:,}; {allowed:,} may be",
            )
        for stage, seconds in self.seconds.items():
            limit = SECONDS + SECONDS_PER_BYTE * self.num_bytes
            limit *= TOOL_FACTOR if stage in TOOLS else 1
            if self.compiled or seconds <= limit:
                continue
            limit *= slowness()
            if seconds > limit:
                what = f"{seconds:.1f} s of processor until {stage}; {limit:.1f} may be"
                raise Finding("time", what)


def check_refusal(error: TrinityError) -> None:
    """Raise Finding for an error that hides a lack of memory or cannot be read."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise Finding("memory", f"refused for want of memory: {error}") from error
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if not text or len(text) > LONGEST_MESSAGE:
        raise Finding("message", f"{type(error).__name__} of {len(text)} characters") from error


class MemoryMeter:
    """Measures the peak resident memory of this process since ``start``."""

    def __init__(self) -> None:
        self._before = 0

    def start(self) -> None:
        """Reset the peak."""
        try:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pass
        self._before = resident("VmRSS:")

    def grown(self) -> int:
        """Return the bytes by which the peak exceeds the memory at ``start``."""
        return max(0, resident("VmHWM:") - self._before)


def resident(field: str) -> int:
    """Return a size of the process's status, such as VmRSS, in bytes; 0 if it is missing."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(field):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(target: str, function: Callable[[Case], None], seed: int, folder: Path) -> Case:
    """Run a case within its limits; exceeding one counts only if a second run does so too.

    Raises Finding, and any exception that a case must not raise.
    """
    for again in (False, True):
        meter = MemoryMeter()
        meter.start()
        case = Case(target, seed, folder)
        try:
            function(case)
        except TrinityError as error:
            case.reached.add("refused")
            check_refusal(error)
        finally:
            remaining = clear(folder)
        if remaining:
            raise Finding("leftover", f"files left behind: {remaining[:3]}")
        try:
            case.check_cost(meter.grown())
        except Finding:
            if again:
                raise
            gc.collect()
            continue
        break
    return case


def clear(folder: Path) -> list[str]:
    """Empty the folder; return the names of temporary files that a writer left."""
    remaining = []
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            remaining += clear(Path(entry.path))
            os.rmdir(entry.path)
        else:
            if entry.name.startswith(".trinity-"):
                remaining.append(entry.name)
            os.unlink(entry.path)
    return remaining
