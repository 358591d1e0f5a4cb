"""Ctrl-C at random moments and repeated loading: the next response is right and nothing leaks.

    python tests/soak/torture.py --interrupts 10000 --cycles 200

A thread sends SIGINT to its own process while the main thread computes with a team of two
threads. The phases: a fresh process from its imports to its first answer, with kernels compiled
or loaded from the cache; and in one long-lived process loading, evaluating a prompt, decoding. An
interrupt counts as lost where no KeyboardInterrupt arrives. After each, the next answer must be
the one of an undisturbed process; a process that makes no progress for a minute is ended with the
tracebacks of its threads. Ends with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HANG_SECONDS = 60
PROMPT = "Prince Andrew"
LONG_PROMPT = "It was a fine day and the prince went to the house of the count. " * 5


class Shooter:
    """Sends SIGINT to this process after a delay."""

    def __init__(self) -> None:
        self._armed, self._fired = threading.Semaphore(0), threading.Event()
        self._delay = 0.0
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._armed.acquire()
            time.sleep(self._delay)
            os.kill(os.getpid(), signal.SIGINT)
            self._fired.set()

    def interrupts(self, work: Callable[[], object], delay: float) -> bool:
        """Run ``work`` and interrupt it after ``delay``; whether the interrupt arrived."""
        self._fired.clear()
        self._delay = delay
        try:
            self._armed.release()
            work()
            while not self._fired.is_set():
                time.sleep(0.0005)
            time.sleep(0.002)
        except KeyboardInterrupt:
            return True
        return False


def alive() -> None:
    """Put off the end that a hang has."""
    faulthandler.dump_traceback_later(HANG_SECONDS * 5, exit=True)


def resources() -> dict[str, Any]:
    """Threads, file descriptors and resident memory of this process.

    Memory that is free, but kept by glibc for the next who asks, is given back before.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    names = sorted(thread.name for thread in threading.enumerate())
    found: dict[str, Any] = {"threads": len(names), "named": names}
    if os.path.isdir("/proc/self/fd"):
        found["threads of the system"] = len(os.listdir("/proc/self/task"))
        found["descriptors"] = len(os.listdir("/proc/self/fd"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["resident kB"] = pages * os.sysconf("SC_PAGE_SIZE") // 1024
    return found


def answer(model: Any) -> list[int]:
    """What must not depend on what was before."""
    ids: list[int] = model.generate(PROMPT, max_tokens=4, temperature=0.0).token_ids
    return ids


def fresh(seed: int, longest: float) -> dict[str, Any]:
    """Interrupts from the imports on until a first answer is there."""
    shooter, rng = Shooter(), random.Random(seed)
    kept: list[Any] = []

    def work() -> None:
        import trinity

        with trinity.load(trinity.demo_model(), threads=2) as model:
            kept.append(answer(model))

    sent = lost = 0
    while not kept:
        alive()
        sent += 1
        # Longer and longer, so that it ends.
        lost += not shooter.interrupts(work, rng.uniform(0, longest * 1.1**sent))
    alive()
    kept.clear()
    work()
    return {"sent": sent, "lost": lost, "answers": kept}


def steady(seed: int, interrupts: int, cycles: int) -> dict[str, Any]:
    """Interrupts in one process, then loading and closing."""
    import trinity

    shooter, rng = Shooter(), random.Random(seed)
    path = trinity.demo_model()
    model = trinity.load(path, threads=2)
    golden = answer(model)

    def load() -> None:
        with trinity.load(path, threads=2) as loaded:
            loaded.generate(PROMPT, max_tokens=1)

    def prompt() -> None:
        model.generate(LONG_PROMPT, max_tokens=1, cache_prompt=False)

    def decode() -> None:
        model.generate(PROMPT, max_tokens=8, ignore_eos=True)

    def stream() -> None:
        for number, _ in enumerate(model.stream(PROMPT, max_tokens=8, ignore_eos=True)):
            if number == 4:
                break

    phases = {"loading": load, "prompt": prompt, "decode": decode, "stream": stream}
    report: dict[str, Any] = {"golden": golden, "wrong": 0, "phases": {}}
    seconds = {}
    for name, work in phases.items():
        taken = []
        for _ in range(5):
            started = time.perf_counter()
            work()
            taken.append(time.perf_counter() - started)
        seconds[name] = sorted(taken)[2]
        report["phases"][name] = {"seconds": round(seconds[name], 4), "sent": 0, "lost": 0}
    alive()
    report["before"] = resources()
    for number in range(interrupts):
        alive()
        name = rng.choices(list(phases), weights=(1, 3, 4, 1))[0]
        counts = report["phases"][name]
        counts["sent"] += 1
        arrived = shooter.interrupts(phases[name], rng.uniform(0, 1.1 * seconds[name]))
        counts["lost"] += not arrived
        report["wrong"] += answer(model) != golden
        if number == interrupts // 10:
            report["after a tenth"] = resources()
    report["after"] = resources()
    for number in range(cycles):
        alive()
        load()
        if number == cycles // 4:
            report["after a quarter of the cycles"] = resources()
    report["after all cycles"] = resources()
    model.close()
    return report


def run(*arguments: str, **environment: str) -> dict[str, Any] | None:
    """The report of a process of its own; None where it died."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        print(f"a process ended with {done.returncode}: {' '.join(arguments)}")
        return None
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interrupts", type=int, default=10000)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--compiling", type=int, default=2, help="processes that compile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--steady", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    if options.fresh is not None:
        print(json.dumps(fresh(options.seed, options.fresh)))
        return 0
    if options.steady:
        print(json.dumps(steady(options.seed, options.interrupts, options.cycles)))
        return 0
    started = time.perf_counter()
    failed, sent, answers = 0, 0, []
    for kind, processes, longest in (
        ("compiling", options.compiling, 0.5),
        ("starting", max(1, options.interrupts // 1000), 0.05),
    ):
        total = lost = 0
        for number in range(processes):
            seed = str(options.seed + number)
            with tempfile.TemporaryDirectory() as folder:
                extra = {"TRINITY_CACHE_DIR": folder} if kind == "compiling" else {}
                found = run("--fresh", str(longest), "--seed", seed, **extra)
            failed += found is None
            if found is not None:
                total, lost = total + found["sent"], lost + found["lost"]
                answers += found["answers"]
        sent += total
        print(f"{kind}: {total} interrupts in {processes} processes, {lost} lost", flush=True)
    rest = max(0, options.interrupts - sent)
    report = run(
        "--steady", "--interrupts", str(rest), "--cycles", str(options.cycles),
        "--seed", str(options.seed),
    )  # fmt: skip
    failed += report is None
    if report is not None:
        wrong = report["wrong"] + sum(found != report["golden"] for found in answers)
        for name, counts in report["phases"].items():
            print(f"{name}: {counts}")
        for name in ("before", "after a tenth", "after", "after a quarter of the cycles",
                     "after all cycles"):  # fmt: skip
            print(f"{name}: {report.get(name)}")
        print(f"wrong answers: {wrong}")
        failed += wrong
        for name in ("threads", "threads of the system", "descriptors"):
            failed += report["after all cycles"].get(name, 0) > report["before"].get(name, 0)
    print(f"{sent + rest} interrupts, {time.perf_counter() - started:.0f} s, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
