"""A process that runs cases: the current one is in shared memory, findings are JSON lines."""

from __future__ import annotations

import faulthandler
import importlib
import json
import mmap
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.fuzzing import case as cases
from tests.fuzzing.case import STAGES, Case
from tests.kept_processes import kept_processes

ROOT = Path(__file__).resolve().parents[2]
# A checkout may have any name, trinity too.
PACKAGES = (ROOT / "trinity", ROOT / "kernels" / "trinity_kernels")
ADDRESS_SPACE = 12 << 30
RECYCLE_BYTES = 2 << 30


class State:
    """Shared by parent and worker: seed, start, peak, and counters by target and stage."""

    _HEAD = struct.Struct("<qqdq")  # stop, seed, start, done

    def __init__(self, path: Path, names: Sequence[str], create: bool = False) -> None:
        self.names = list(names)
        self._columns = ("cases", *STAGES, "microseconds")
        size = self._HEAD.size + 8 * len(self.names) * len(self._columns)
        if create:
            path.write_bytes(bytes(size))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)

    def read(self) -> tuple[int, int, float, int]:
        """Stop, seed, start of the case or 0.0, cases done."""
        stop, seed, start, done = self._HEAD.unpack_from(self._map)
        return stop, seed, start, done

    def stop(self) -> None:
        """Tell the worker to end after its case."""
        struct.pack_into("<q", self._map, 0, 1)

    def begin(self, seed: int) -> None:
        """Record the start of a case."""
        struct.pack_into("<qd", self._map, 8, seed, time.monotonic())

    def end(self, done: int) -> None:
        """Record the end of a case."""
        struct.pack_into("<dq", self._map, 16, 0.0, done)

    def add(self, target: str, column: str, count: int = 1) -> None:
        """Increase a counter."""
        at = self._at(target, column)
        struct.pack_into("<q", self._map, at, struct.unpack_from("<q", self._map, at)[0] + count)

    def count(self, target: str, column: str) -> int:
        """Return a counter."""
        value: int = struct.unpack_from("<q", self._map, self._at(target, column))[0]
        return value

    def _at(self, target: str, column: str) -> int:
        row = self.names.index(target) * len(self._columns)
        return self._HEAD.size + 8 * (row + self._columns.index(column))


def finding_of(error: BaseException, target: str) -> tuple[str, str]:
    """Return group and text of an exception: its type, and the deepest place in trinity."""
    kind = error.kind if isinstance(error, cases.Finding) else type(error).__name__
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        for package in PACKAGES:
            if Path(frame.filename).is_relative_to(package):
                name = Path(frame.filename).relative_to(package.parent).as_posix()
                place = f"{name}:{frame.name}"
    where = f"at {place}" if place else f"in {target}"
    return f"{kind} {where}", "".join(traceback.format_exception(error))[-6000:]


def run_seeds(
    seeds: range,
    schedule: Sequence[str],
    targets: Mapping[str, Callable[[Case], None]],
    folder: Path,
    state: State,
) -> None:
    """Run cases until the last one or until told to stop."""
    for done, seed in enumerate(seeds, 1):
        if state.read()[0]:
            break
        target = schedule[seed % len(schedule)]
        state.begin(seed)
        start = time.process_time()
        try:
            case = cases.run(target, targets[target], seed, folder)
            for stage in case.reached:
                state.add(target, stage)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            group, text = finding_of(error, target)
            cases.clear(folder)
            found = {"target": target, "seed": seed, "group": group, "text": text}
            print(json.dumps(found), flush=True)
        state.add(target, "cases")
        state.add(target, "microseconds", int(1e6 * (time.process_time() - start)))
        state.end(done)
        if done % 256 == 0 and cases.resident("VmRSS:") > RECYCLE_BYTES:
            print(json.dumps({"recycle": seed}), flush=True)
            break


def limit_process(log: Path) -> None:
    """Limit the address space, disable core files, and print stacks of crashes and hangs."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    file = open(log, "w")  # noqa: SIM115 - lives as long as the process
    faulthandler.enable(file)
    faulthandler.register(signal.SIGUSR1, file, all_threads=True)
    warnings.simplefilter("error")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(0.05)


def main(arguments: Sequence[str]) -> int:
    """module first step last names folder: run by ``watch``; the module has the targets."""
    module, first, step, last, names, folder_name = arguments
    folder = Path(folder_name)
    limit_process(folder / "stack")
    targets = importlib.import_module(module)
    chosen = names.split(",")
    files = folder / "files"
    files.mkdir(exist_ok=True)
    cases.clear(files)
    state = State(folder / "state", chosen)
    seeds = range(int(first), int(last), int(step))
    with kept_processes():
        run_seeds(seeds, targets.schedule(chosen), targets.TARGETS, files, state)
    return 0
