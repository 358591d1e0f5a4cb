"""Kill every writer at random moments and check the files that remain.

    python tests/soak/kill_writers.py 500

In turns SIGKILL, SIGTERM and SIGINT; half of the kills at a random moment of the run, half within
20 ms after a temporary file appeared. After each: the output is absent (where it was), old or whole
by its content; after TERM and INT no temporary file is there; after the next run there is none at
all. Ends with a table, and with status 1 where something was otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.tiny_models import write_tiny_model  # noqa: E402
from tests.tools.golden_models import model_directory  # noqa: E402
from trinity.errors import TrinityError  # noqa: E402
from trinity.formats.imatrix import read_imatrix  # noqa: E402

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SHARES = {"quantize": 27, "convert": 26, "imatrix": 20, "warmup": 15, "first runs": 12}  # percent
TEXT = "All happy families are alike; each unhappy family is unhappy in its own way. " * 12
GENERATE = ("generate", "-p", "ab", "-n", "4", "--temp", "0", "-q", "-t", "1", "--isa", "portable")


def start(arguments: list[str], cache: Path) -> subprocess.Popen[str]:
    """The command line; Ctrl-C reaches it also where this script runs in the background."""
    paths = os.pathsep.join(sys.path)
    return subprocess.Popen(
        [sys.executable, "-m", "trinity", *arguments],
        cwd=ROOT,
        env={**os.environ, "TRINITY_CACHE_DIR": str(cache), "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def temporaries(folder: Path) -> list[Path]:
    """Temporary files in a folder and those below, of the writers here and of Numba."""
    found = [*folder.rglob(".trinity-*"), *folder.rglob("*.tmp*")]
    return sorted({path for path in found if path.is_file()})


class Trial:
    """Counts what happened, and kills."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.cache = folder / "cache"
        self.kills: Counter[tuple[str, str]] = Counter()
        self.left: Counter[str] = Counter()  # temporaries, before the next run
        self.ends: Counter[str] = Counter()
        self.failures: list[str] = []

    def expect(self, is_right: bool, what: str) -> None:
        """Note a failure."""
        if not is_right:
            self.failures.append(what)
            print(f"WRONG: {what}", flush=True)

    def whole(self, arguments: list[str], cache: Path | None = None) -> tuple[str, float]:
        """A run that nobody kills: its text and its seconds."""
        began = time.monotonic()
        process = start(arguments, cache or self.cache)
        out, err = process.communicate(timeout=600)
        self.expect(process.returncode == 0, f"{arguments}: status {process.returncode}: {err}")
        return out, time.monotonic() - began

    def kill(self, name: str, process: subprocess.Popen[str], seconds: float, watch: Path) -> None:
        """Kill a run of about ``seconds``, by the signal whose turn it is."""
        number = SIGNALS[sum(self.kills.values()) % len(SIGNALS)]
        deadline = time.monotonic() + self.random.uniform(0, 1.1 * seconds)
        if self.random.random() < 0.5:  # the moments in which there is something to leave
            deadline = time.monotonic() + 3 * seconds
            before = set(temporaries(watch))
            while process.poll() is None and time.monotonic() < deadline:
                if set(temporaries(watch)) - before:
                    deadline = time.monotonic() + self.random.uniform(0, 0.02)
                    break
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        self.kills[name, number.name] += 1
        self.ends[f"{number.name}: status {process.returncode}"] += 1
        left = temporaries(watch)
        self.left[f"{name}, {number.name}"] += len(left)
        ours = "Traceback" not in err or process.returncode in (1, -signal.SIGINT)
        self.expect(ours, f"{name}: {number.name} shows {err[-300:]}")
        if number != signal.SIGKILL:
            self.expect(not left, f"{name}: {number.name} leaves {left}")

    def output(self, name: str, count: int, out: Path, arguments: list[str],
               is_whole: Callable[[Path], bool]) -> None:  # fmt: skip
        """Kill a command that writes ``out``; run it whole each tenth time and after leftovers."""
        self.whole(arguments)
        _, seconds = self.whole([*arguments, "--force"])
        for number in range(count):
            old = None
            out.unlink(missing_ok=True)
            if self.random.random() < 0.5:
                old = b"an older file, \xff" + os.urandom(64)
                out.write_bytes(old)
            self.kill(name, start([*arguments, "--force"], self.cache), seconds, out.parent)
            if not out.exists():
                self.expect(old is None, f"{name}: the old output is gone")
            elif out.read_bytes() != old:
                self.expect(is_whole(out), f"{name}: the output is neither old nor whole")
            if temporaries(out.parent) or number % 10 == 0:
                self.whole([*arguments, "--force"])
                self.expect(is_whole(out), f"{name}: the next run's output is not whole")
                left = temporaries(out.parent)
                self.expect(not left, f"{name}: the next run leaves {left}")

    def warmup(self, count: int) -> None:
        """Kill warmups that share a cache; when it is full, it serves a model and is emptied."""
        arguments, cache = ["warmup", "--isa", "portable"], self.folder / "warmed"
        cache.mkdir()
        expected = self.whole([*GENERATE])[0]
        for _ in range(count):
            process = start(arguments, cache)
            self.kill("warmup", process, 4.0, cache)
            text = self.whole([*GENERATE], cache)[0]
            self.expect(text == expected, f"after a killed warmup: {text!r}, not {expected!r}")
            left = temporaries(cache)
            self.expect(not left, f"warmup: the next run leaves {left}")
            if process.returncode == 0:
                shutil.rmtree(cache)
                cache.mkdir()

    def first_runs(self, count: int, model: Path) -> None:
        """Two at once, whose cache lacks a part, or all; one is killed, or both."""
        cache = self.folder / "first"
        runs = [[*GENERATE], [*GENERATE, "-m", str(model)]]
        expected = [self.whole(run)[0] for run in runs]
        done = 0
        while done < count:
            files = sorted(cache.rglob("*.code"))
            for path in self.random.sample(files, len(files) // 5 if done else len(files)):
                path.unlink()
            processes = [start(run, cache) for run in runs]
            victims = self.random.sample(range(2), min(self.random.choice([1, 1, 2]), count - done))
            for victim in victims:
                self.kill_one_of(processes[victim], cache)
                done += 1
            for which in {0, 1} - set(victims):
                out, err = processes[which].communicate(timeout=600)
                self.expect(out == expected[which], f"beside a killed run: {out!r} {err}")
            for run, text in zip(runs, expected, strict=True):
                self.expect(self.whole(run, cache)[0] == text, "after two first runs: another text")
            left = temporaries(cache)
            self.expect(not left, f"first runs: the next runs leave {left}")

    def kill_one_of(self, process: subprocess.Popen[str], cache: Path) -> None:
        """Kill a run beside which another one writes, so that temporaries say nothing yet."""
        number = SIGNALS[sum(self.kills.values()) % len(SIGNALS)]
        time.sleep(self.random.uniform(0.3, 4.0))
        process.send_signal(number)
        process.communicate(timeout=120)
        self.kills["first runs", number.name] += 1
        self.ends[f"{number.name}: status {process.returncode}"] += 1


def digest_check(path: Path) -> Callable[[Path], bool]:
    """Whether a file is the same as the one at ``path`` is now."""
    expected = hashlib.sha256(path.read_bytes()).digest()
    return lambda found: hashlib.sha256(found.read_bytes()).digest() == expected


def is_imatrix(path: Path) -> bool:
    """Whether the file is a whole importance matrix of some chunks."""
    try:
        return read_imatrix(path).chunk_count > 0
    except TrinityError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kills", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    counts = {name: max(1, options.kills * share // 100) for name, share in SHARES.items()}
    counts["quantize"] += max(0, options.kills - sum(counts.values()))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trial = Trial(options.seed, folder)
        model, small, text = (folder / n for n in ("model.gguf", "small.gguf", "text.txt"))
        write_tiny_model(model, hidden_size=256, intermediate_size=1024, num_layers=6, type="F16")
        write_tiny_model(small)
        text.write_text(TEXT)
        source = model_directory("bitnet-packed", folder)
        for writer in ("quantize", "convert", "imatrix"):
            (folder / writer).mkdir()
            out = folder / writer / "out.gguf"
            arguments = {
                "quantize": ["quantize", str(model), str(out), "Q4_K_M", "-t", "1"],
                "convert": ["convert", str(source), str(out), "--outtype", "i2_s"],
                "imatrix": ["imatrix", "-m", str(small), "-f", str(text), "-o", str(out),
                            "-c", "32", "--save-frequency", "1", "-t", "1", "--isa", "portable"],
            }[writer]  # fmt: skip
            trial.whole([*arguments, "--force"])
            check = is_imatrix if writer == "imatrix" else digest_check(out)
            out.unlink()
            trial.output(writer, counts[writer], out, arguments, check)
            print(f"{writer}: {time.monotonic() - began:.0f} s", flush=True)
        trial.warmup(counts["warmup"])
        print(f"warmup: {time.monotonic() - began:.0f} s", flush=True)
        trial.first_runs(counts["first runs"], small)
    for (writer, signal_name), number in sorted(trial.kills.items()):
        left = trial.left[f"{writer}, {signal_name}"]
        print(f"{writer:<12} {signal_name:<8} {number:>4} kills, {left} temporaries left")
    for end, number in sorted(trial.ends.items()):
        print(f"{end}: {number}")
    total = sum(trial.kills.values())
    print(f"{total} kills in {time.monotonic() - began:.0f} s, {len(trial.failures)} failures")
    sys.exit(bool(trial.failures))


if __name__ == "__main__":
    main()
