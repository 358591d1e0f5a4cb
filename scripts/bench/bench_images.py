"""Measure the encoding of one image by trinity, llama.cpp and transformers, in turns.

    python scripts/bench/bench_images.py --models DIR --mtmd-python PYTHON \\
        --transformers-python PYTHON
    python scripts/bench/bench_images.py --tower qwen3vl --layers 2 --image 256 256

Towers: gemma3 = that of Gemma 3 4B, an image of 896 x 896 pixels; qwen3vl = that of Qwen3-VL 8B,
an image of 1024 x 1024. Weights are random, in F16; transformers computes in float32 with the same
values. Files that DIR lacks are written by scripts/models/make_tower.py. The time is that from
pixels to rows of the text model, so it includes resizing and normalizing.

llama.cpp's multimodal library (mtmd) is used through llama-cpp-python; how to build it is in
bench_peers.py. Each peer is a process, which is idle while another one runs. Each round has an
image of its own, because trinity keeps the rows of known ones. "difference" is the largest
difference of values in some of the rows from trinity's, relative to the largest value.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import trinity  # noqa: E402
from scripts.bench.bench_peers import SETTLE_SECONDS, Answering  # noqa: E402
from scripts.bench.image_peer import image_of, measured  # noqa: E402
from scripts.models.make_tower import CLASS_FILE, SIZES, Size, write_tower  # noqa: E402
from trinity.images.encoder import ImageEncoder  # noqa: E402
from trinity.images.opening import open_encoder  # noqa: E402
from trinity.tools.machine import machine, versions  # noqa: E402
from trinity_kernels.cores import default_threads  # noqa: E402

PEER = Path(__file__).with_name("image_peer.py")


class Contestant:
    """An engine that encodes images, and the times of its rounds."""

    def __init__(self, name: str, peer: Answering | None, flash: bool = True) -> None:
        self.name, self.flash, self.peer = name, flash, peer
        self.rounds: list[dict[str, Any]] = []


def folder_of(tower: str, size: Size, models: Path) -> Path:
    """Return the folder with a tower's files; write them if they are missing."""
    folder = models / f"{tower}-{size.layers}"
    if not (folder / CLASS_FILE).exists():
        print(f"{folder}: writing", file=sys.stderr, flush=True)
        write_tower(folder, size)
    return folder


def contestants(
    options: argparse.Namespace, folder: Path, threads: int, stack: ExitStack
) -> Iterator[Contestant]:
    """Yield trinity and the peers that are wanted."""
    yield Contestant("trinity", None)

    def peer(python: str, engine: str) -> Answering:
        command = [python, str(PEER), engine, str(folder), "--threads", str(threads)]
        started = Answering(engine, command, folder / f"{engine}.log")
        stack.callback(started.close)
        return started

    if options.mtmd_python:
        found = peer(options.mtmd_python, "llama.cpp")
        for kind in options.peer_attention:
            yield Contestant(f"llama.cpp, {kind} attention", found, kind == "flash")
    if options.transformers_python:
        yield Contestant("transformers", peer(options.transformers_python, "transformers"))


def encoder_of(model: trinity.Model, path: Path) -> ImageEncoder:
    """Return trinity's encoder of a tower in a file."""
    provider: Any = None  # it is for directories
    with model.exclusive() as engine:
        found = open_encoder(provider, engine, path, None, print)
    assert found is not None
    return found


def measure(tower: str, options: argparse.Namespace, threads: int, models: Path) -> dict[str, Any]:
    """Measure all rounds of a tower; each round runs every engine once."""
    size = SIZES[tower]
    size = size.cut(options.layers or size.layers)
    folder, (width, height) = folder_of(tower, size, models), options.image or size.image
    with ExitStack() as stack:
        model = stack.enter_context(trinity.load(folder / "text.gguf", threads=threads))
        encoder = stack.enter_context(closing(encoder_of(model, folder / "mmproj.gguf")))
        engines = list(contestants(options, folder, threads, stack))
        started = time.perf_counter()
        for number in range(-options.warm_up, options.rounds):
            if engines[0].rounds and time.perf_counter() - started > options.seconds:
                break
            request = {"seed": number + options.warm_up, "width": width, "height": height}
            pixels = image_of(**request)
            for engine in engines:
                print(f"{tower}, {engine.name}: round {number + 1}", file=sys.stderr, flush=True)
                if engine.peer is None:
                    found = measured(lambda image: encoder.encode(image).rows, pixels)
                else:
                    found = engine.peer.ask({**request, "flash": engine.flash})
                if number >= 0:
                    engine.rounds.append(found)
                time.sleep(SETTLE_SECONDS)
    return {
        "tower": tower,
        "layers": size.layers,
        "image": [width, height],
        "peers": {engine.name: engine.peer.about for engine in engines if engine.peer},
        "results": [result(engine, engines[0]) for engine in engines],
    }


def result(engine: Contestant, ours: Contestant) -> dict[str, Any]:
    """Return the rounds of an engine and their medians, compared with trinity's."""
    times = {kind: [found[kind] for found in engine.rounds] for kind in ("seconds", "processor")}
    base = [found["seconds"] for found in ours.rounds]
    differences = []
    for found, expected in zip(engine.rounds, ours.rounds, strict=True):
        values, wanted = np.array(found["sample"]), np.array(expected["sample"])
        differences.append(float(np.abs(values - wanted).max() / np.abs(wanted).max()))
    return {
        "engine": engine.name,
        **times,
        "median": median(times["seconds"]),
        "median_processor": median(times["processor"]),
        "ratio": median(times["seconds"]) / median(base),
        "difference": max(differences),
    }


def table(towers: list[dict[str, Any]]) -> Iterator[str]:
    """Format medians and ratios as Markdown."""
    yield "| tower | image | engine | s | processor s | of trinity's time | difference |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for tower in towers:
        width, height = tower["image"]
        for row in tower["results"]:
            yield (
                f"| {tower['tower']}, {tower['layers']} layers | {width} x {height} "
                f"| {row['engine']} | {row['median']:.2f} | {row['median_processor']:.2f} "
                f"| {row['ratio']:.2f} | {row['difference']:.1e} |"
            )


def main(arguments: list[str] | None = None) -> int:
    lines = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=lines[0], epilog=lines[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tower", action="append", choices=SIZES, help="repeatable; default all")
    add("--models", type=Path, help="folder of the files; default a temporary one")
    add("--mtmd-python", metavar="PYTHON", help="a Python that has llama-cpp-python with mtmd")
    add(
        "--peer-attention",
        nargs="+",
        choices=("flash", "plain"),
        default=["flash"],
        help="llama.cpp's attention; each is measured",
    )
    add("--transformers-python", metavar="PYTHON", help="a Python that has torch, transformers")
    add("--layers", type=int, help="only so many, as a quick test")
    add("--image", type=int, nargs=2, metavar=("WIDTH", "HEIGHT"), help="another size")
    add("--threads", "-t", type=int, help="of all engines; default the physical cores")
    add("--rounds", "-r", type=int, default=3)
    add("--seconds", type=float, default=inf, help="start no round of a tower after so many")
    add("--warm-up", type=int, default=1, metavar="ROUNDS", help="rounds that do not count")
    add("--json", type=Path, metavar="FILE", help="write every round here")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.warm_up < 0:
        parser.error("there is nothing to measure")
    threads = options.threads or default_threads()
    with tempfile.TemporaryDirectory() as temporary:
        models = options.models or Path(temporary)
        towers = [measure(tower, options, threads, models) for tower in options.tower or SIZES]
    print("\n".join(table(towers)))
    if options.json:
        report = {
            "machine": machine(),
            "versions": versions(),
            "threads": threads,
            "towers": towers,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
