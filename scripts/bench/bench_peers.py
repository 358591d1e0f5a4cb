"""Measure trinity and llama.cpp on the same shapes, in turns, and print medians and ratios.

    python scripts/bench/bench_peers.py --models DIR --peer-python VENV/bin/python
    python scripts/bench/bench_peers.py --shape A --isa amx --isa avx2 --batch 16 --depth 4096

Shapes: A = BitNet 2B-4T, I2_S (llama.cpp: the same in TQ2_0); B = 1B llama, Q4_0 with Q8_0 head;
C = the same, Q8_0; D = 100M llama, Q4_0; qwen3-30b-a3b-8l, gpt-oss-20b-4l and the like = that
model, cut to so many layers; a type's name = 1B llama in that type, its output matrix in Q6_K; a
mix's (Q4_K_M) = 1B llama quantized to it. The weights are random; files that DIR lacks are written.

llama.cpp is used through llama-cpp-python, in a process of its own that --peer-python starts. It is
idle while trinity runs, and trinity while it runs. On a CPU with AMX build it with
CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_VBMI=ON
-DGGML_AVX512_BF16=ON -DGGML_AVX_VNNI=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
-DGGML_BMI2=ON": its own tile path can die with an illegal instruction. The flags that the build
says it has are in the JSON, as "system_info".
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from trinity.providers import open_weights
from trinity.quantization import quantize
from trinity.quantization.mixes import MIXES
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.tools.bench import Bench
from trinity.tools.machine import machine, versions
from trinity_kernels.bandwidth import read_bandwidth
from trinity_kernels.cores import default_threads
from trinity_kernels.ggml import TYPES_BY_NAME
from trinity_kernels.ops.matmul.activations import FORMS

HERE = Path(__file__).resolve().parent
# Idle threads of either engine spin for a moment before they sleep.
SETTLE_SECONDS = 0.05
PEER_MODES = ("flash", "plain")
# What make_synthetic.py is told: for trinity, and where llama.cpp needs another file, for that.
SHAPES: dict[str, tuple[list[str], list[str] | None]] = {
    "A": (["bitnet-2b"], ["bitnet-2b", "--arch", "bitnet", "--type", "TQ2_0"]),
    "B": (["llama-1b", "--type", "Q4_0", "--head-type", "Q8_0"], None),
    "C": (["llama-1b", "--type", "Q8_0"], None),
    "D": (["llama-100m", "--type", "Q4_0"], None),
    "qwen3-30b-a3b-8l": (["qwen3-30b-a3b-8l", "--head-type", "Q6_K"], None),
    "gpt-oss-20b-4l": (["gpt-oss-20b-4l"], None),
    "qwen3-0.6b": (["qwen3-0.6b", "--head-type", "Q6_K"], None),
    "gemma3-1b": (["gemma3-1b", "--head-type", "Q8_0"], None),
    "qwen35-0.8b": (["qwen35-0.8b", "--type", "Q4_0", "--head-type", "Q8_0"], None),
    "phi4-mini-16l": (["phi4-mini-16l", "--head-type", "Q6_K"], None),
    "tiny": (["tiny"], None),
    "tiny-bitnet": (
        ["tiny", "--arch", "bitnet-b1.58", "--type", "I2_S"],
        ["tiny", "--arch", "bitnet", "--type", "TQ2_0"],
    ),
}

# A type's name: 1B llama in that type, with the output matrix that quantizers give it.
SHAPES |= {
    name: (["llama-1b", "--type", name, "--head-type", "Q6_K"], None)
    for name in FORMS
    if name in TYPES_BY_NAME
}
# A mix's name: the same from F16 by trinity's quantizer.
MIXED = MIXES.keys() - FORMS.keys()
SHAPES |= {name: (["llama-1b", "--type", "F16"], None) for name in MIXED}


@dataclass(frozen=True)
class Test:
    """``count`` tokens of a prompt ("pp"), or ``count`` steps of ``batch`` sequences ("tg")."""

    kind: str
    count: int
    batch: int = 1
    depth: int = 0

    @property
    def name(self) -> str:
        batch = f" b{self.batch}" if self.batch > 1 else ""
        return f"{self.kind}{self.count}{batch}" + (f" @ d{self.depth}" if self.depth else "")


class Answering:
    """A process that answers each line of JSON with one; its first line is ``about``."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self.name, self.log = name, log
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                encoding="utf-8", env=environment,
            )  # fmt: skip
        self.about = self.answer()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; end this program if there is none."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the answer tells
            print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            status = self.close()
            end = self.log.read_text(errors="replace").splitlines()[-5:]
            raise SystemExit("\n".join([f"the process of {self.name} ended with {status}:", *end]))
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> int:
        """End the process and return its exit status."""
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()


class Peer(Answering):
    """The process that runs llama.cpp."""

    def __init__(
        self, python: str, model: Path, threads: int, log: Path, kv_type: str = "f16"
    ) -> None:
        command = [python, str(HERE / "llama_cpp_peer.py"), str(model), "--threads", str(threads)]
        super().__init__("llama.cpp", [*command, "--kv-type", kv_type], log)

    def measure(self, test: Test, mode: str) -> float:
        """Return the seconds of one round, with or without flash attention."""
        return float(self.ask({**vars(test), "flash": mode == "flash"})["seconds"])


def model_files(shape: str, folder: Path) -> tuple[Path, Path]:
    """Return trinity's and llama.cpp's file; write those that are missing."""
    ours, theirs = SHAPES[shape]
    paths = []
    for name, arguments in ((f"{shape}.gguf", ours), (f"{shape}-peer.gguf", theirs)):
        if arguments is None:
            continue
        path = folder / name
        if not path.exists():
            part = path.with_suffix(".part")
            maker = HERE.parent / "models" / "make_synthetic.py"
            command = [sys.executable, str(maker), arguments[0], str(part), *arguments[1:]]
            paths_of_python = os.pathsep.join(p for p in sys.path if p)
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths_of_python})
            if shape in MIXED:
                whole = part.rename(part.with_suffix(".f16"))
                quantize(whole, part, shape)
                whole.unlink()
            part.rename(path)
        paths.append(path)
    return paths[0], paths[-1]


def forget(path: Path) -> None:
    """Drop a file's pages from the system's cache if possible, so that each reader loads them."""
    with suppress(AttributeError, OSError), open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_shape(
    shape: str, tests: list[Test], options: argparse.Namespace, threads: int, folder: Path
) -> dict[str, Any]:
    """Measure all rounds of a shape; each round runs every engine once."""
    ours, theirs = model_files(shape, folder)
    if options.fresh:
        for path in {ours, theirs}:
            forget(path)
    context = max(test.depth + test.count for test in tests)
    with ExitStack() as stack:
        engines: dict[str, CPUEngine] = {}
        for isa in options.isa or [None]:
            provider = stack.enter_context(closing(open_weights(ours)))
            engine = load_engine(
                provider, threads=threads, context_length=context, isa=isa, kv_type=options.kv_type
            )
            engines[engine.isa] = stack.enter_context(closing(engine))
        # Caches stay filled from round to round, those of each depth apart.
        benches = {
            (isa, test.depth): Bench(engine) for isa, engine in engines.items() for test in tests
        }
        peer = None
        if not options.no_peer:
            log = folder / "llama.cpp.log"
            peer = Peer(options.peer_python, theirs, threads, log, options.kv_type)
            stack.callback(peer.close)
        seconds: dict[tuple[str, str], list[float]] = {}
        bandwidths = []
        for number in range(-1, options.rounds):  # the first is the warm-up
            for test in tests:
                print(f"{shape} {test.name}: round {number + 1}", file=sys.stderr, flush=True)
                for isa in engines:
                    bench = benches[isa, test.depth]
                    run = bench.prompt if test.kind == "pp" else bench.generation
                    bench.fill(test.depth, test.batch)
                    taken = run(test.count, test.depth, test.batch)
                    seconds.setdefault((test.name, isa), []).append(taken)
                    time.sleep(SETTLE_SECONDS)
                for mode in options.peer_attention if peer else []:
                    assert peer
                    taken = peer.measure(test, mode)
                    seconds.setdefault((test.name, mode), []).append(taken)
                    time.sleep(SETTLE_SECONDS)
            if number >= 0:
                bandwidths.append(read_bandwidth(threads))
        return {
            "shape": shape,
            "files": [ours.name, theirs.name],
            "bandwidth_rounds": bandwidths,
            "peer": peer.about if peer else None,
            "results": [
                result(test, isa, engine, seconds, bandwidths)
                for test in tests
                for isa, engine in engines.items()
            ],
        }


def result(
    test: Test,
    isa: str,
    engine: CPUEngine,
    seconds: dict[tuple[str, str], list[float]],
    bandwidths: list[float],
) -> dict[str, Any]:
    """Return rounds and medians of one test at one level, with llama.cpp's."""
    tokens = test.count * test.batch
    ours = [tokens / s for s in seconds[test.name, isa][1:]]
    modes = {
        mode: [tokens / s for s in seconds[test.name, mode][1:]]
        for mode in PEER_MODES
        if (test.name, mode) in seconds
    }
    # Where it was measured in both modes, the better counts.
    theirs = max(modes.values(), key=median, default=[])
    found: dict[str, Any] = {
        "test": test.name,
        "isa": isa,
        "trinity_rounds": ours,
        "trinity": median(ours),
        "llama_cpp_rounds": modes,
        "llama_cpp": median(theirs) if theirs else None,
        "ratio": median(ours) / median(theirs) if theirs else None,
    }
    if test.kind == "tg" and test.batch == 1:
        read = median(ours) * engine.bytes_per_token(test.depth + test.count // 2)
        found["read"] = read
        found["bandwidth_share"] = read / median(bandwidths)
    return found


def table(shapes: list[dict[str, Any]], threads: int) -> Iterator[str]:
    """Format medians and ratios as Markdown."""
    yield "| shape | test | isa | trinity t/s | llama.cpp t/s | ratio | read GB/s | share |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for shape in shapes:
        for row in shape["results"]:
            peer = f"{row['llama_cpp']:.1f} | {row['ratio']:.2f}" if row["ratio"] else " | "
            share = " | "
            if "read" in row:
                share = f"{row['read'] / 1e9:.1f} | {row['bandwidth_share']:.0%}"
            yield (
                f"| {shape['shape']} | {row['test']} | {row['isa']} | {row['trinity']:.1f} "
                f"| {peer} | {share} |"
            )
    yield ""
    for shape in shapes:
        bandwidth = median(shape["bandwidth_rounds"]) / 1e9
        yield f"{shape['shape']}: {threads} threads can read {bandwidth:.1f} GB/s"


def main(arguments: list[str] | None = None) -> int:
    lines = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=lines[0], epilog=lines[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--shape", "-s", action="append", choices=SHAPES, help="repeatable; default A, B, C, D")
    add("--models", type=Path, help="folder of the model files; default a temporary one")
    add("--peer-python", default=sys.executable, help="a Python that has llama-cpp-python")
    add(
        "--peer-attention",
        nargs="+",
        choices=PEER_MODES,
        default=PEER_MODES[:1],
        help="llama.cpp's attention; with both, the better counts (plain is better at depth)",
    )
    add("--fresh", action="store_true", help="read the files from the disk anew first")
    add("--no-peer", action="store_true", help="measure trinity alone")
    add("--isa", action="append", help="trinity's level, repeatable; default the best")
    add("--threads", "-t", type=int, help="of both engines; default the physical cores")
    add("--kv-type", choices=("f16", "q8_0"), default="f16", help="of both engines' KV caches")
    add("--rounds", "-r", type=int, default=3)
    add("--prompt-tokens", "-p", type=int, default=512, help="0 skips the prompt test")
    add("--generated-tokens", "-n", type=int, default=128, help="0 skips the generation test")
    add("--batch", "-b", type=int, action="append", default=[], help="generate so many at once too")
    add("--depth", "-d", type=int, action="append", default=[], help="generate at this depth too")
    add("--json", type=Path, metavar="FILE", help="write every round here")
    options = parser.parse_args(arguments)
    generated = options.generated_tokens
    tests = [Test("pp", options.prompt_tokens), Test("tg", generated)]
    tests += [Test("tg", generated, batch=batch) for batch in options.batch]
    tests += [Test("tg", generated, depth=depth) for depth in options.depth]
    tests = [test for test in tests if test.count > 0]
    if not tests or options.rounds < 1:
        parser.error("there is nothing to measure")
    threads = options.threads or default_threads()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        shapes = [
            measure_shape(shape, tests, options, threads, folder)
            for shape in options.shape or ["A", "B", "C", "D"]
        ]
    print("\n".join(table(shapes, threads)))
    if options.json:
        report = {
            "machine": machine(),
            "versions": versions(),
            "threads": threads,
            "shapes": shapes,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
