"""Measure concurrent callers of the API, and the gaps of a stream while a long prompt is prefilled.

    python scripts/bench/bench_requests.py build/B.gguf --callers 16 --tokens 64 --beside 4096
    python scripts/bench/bench_requests.py build/B.gguf --prompt 400 --peer-python VENV/bin/python

"callers": threads that call Model.generate at the same moment, each with a prompt of its own; all
their tokens per second, against one caller's in the same round. "gap": the longest and the median
time between two pieces of a running stream while a prompt of ``--beside`` tokens is evaluated.
With --peer-python (see bench_peers.py) llama.cpp does the callers' work as its batched-bench does,
round by round: all prompts, one after the other, then steps of a token for each sequence. The
figures are medians of the rounds, of the longest gap the largest. Prompts are random tokens.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

import trinity  # noqa: E402
from scripts.bench.bench_peers import Peer, Test  # noqa: E402
from trinity.model import Model  # noqa: E402
from trinity_kernels.cores import default_threads  # noqa: E402


class Requests:
    """Random prompts for a model, and the times of requests with them."""

    def __init__(self, model: Model, tokens: int) -> None:
        self.model = model
        self.tokens = tokens
        self._rng = np.random.default_rng(0)

    def prompt(self, count: int) -> list[int]:
        """Return ``count`` random tokens."""
        ids = self._rng.integers(0, self.model.config.vocab_size, count)
        return [int(i) for i in ids]

    def answer(self, prompt: list[int]) -> None:
        """Make one request for ``tokens`` tokens."""
        self.model.generate(
            prompt, max_tokens=self.tokens, ignore_eos=True, speculative=False, seed=1
        )

    def together(self, callers: int, length: int) -> float:
        """Return the tokens per second of all callers together."""
        prompts = [self.prompt(length) for _ in range(callers)]
        threads = [threading.Thread(target=self.answer, args=(prompt,)) for prompt in prompts]
        started = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return callers * self.tokens / (perf_counter() - started)

    def gaps(self, beside: int) -> list[float]:
        """Return the seconds between the chunks of a stream while a prompt is prefilled."""
        other = threading.Thread(
            target=self.model.generate,
            args=(self.prompt(beside),),
            kwargs={"max_tokens": 1, "cache_prompt": False},
        )
        times: list[float] = []
        options = {"ignore_eos": True, "speculative": False, "temperature": 0.0}
        for _ in self.model.stream(self.prompt(3), **options):  # type: ignore[arg-type]
            times.append(perf_counter())
            if len(times) == 5:
                other.start()
            if len(times) > 5 and not other.is_alive():
                break
        other.join()
        return [after - before for before, after in pairwise(times)]


def peer_seconds(peer: Peer, callers: int, tokens: int, prompt: int) -> float:
    """Return the seconds that llama.cpp takes for the work of all callers."""
    prompts = callers * peer.measure(Test("pp", prompt), "flash")
    return prompts + peer.measure(Test("tg", tokens, callers, prompt), "flash")


def compare(requests: Requests, options: argparse.Namespace) -> None:
    """Measure rounds of callers and of llama.cpp with the same work, interleaved."""
    model = options.peer_model or options.model
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "peer.log"
        with closing(Peer(options.peer_python, model, options.threads, log)) as peer:
            work = options.callers, options.tokens, options.prompt
            peer_seconds(peer, *work)
            ours, theirs = [], []
            for _ in range(options.rounds):
                theirs.append(peer_seconds(peer, *work))
                rate = requests.together(options.callers, options.prompt)
                ours.append(options.callers * options.tokens / rate)
    ratio = median(b / a for a, b in zip(ours, theirs, strict=True))
    print(
        f"{options.callers} prompts of {options.prompt} and {options.tokens} tokens each: "
        f"{median(ours):.1f} s, llama.cpp {median(theirs):.1f} s, {ratio:.2f} times as long"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--prompt", type=int, default=8, help="tokens of each prompt")
    parser.add_argument("--beside", type=int, default=4096, help="tokens; 0 leaves the gap out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-invariant", action="store_true", help="load the model so")
    parser.add_argument("--peer-python", metavar="PYTHON", help="with llama-cpp-python")
    parser.add_argument("--peer-model", type=Path, help="the same shape, if it needs other types")
    options = parser.parse_args(arguments)
    context = max(options.prompt + options.tokens, options.beside + 1024)
    with trinity.load(
        options.model,
        threads=options.threads,
        context_length=context,
        batch_invariant=options.batch_invariant,
    ) as model:
        requests = Requests(model, options.tokens)
        requests.together(2, options.prompt)
        one, many = [], []
        for _ in range(options.rounds):
            one.append(requests.together(1, options.prompt))
            many.append(requests.together(options.callers, options.prompt))
        print(f"one caller: {median(one):.1f} tokens/s")
        ratio = median(b / a for a, b in zip(one, many, strict=True))
        print(f"{options.callers} callers: {median(many):.1f} tokens/s, {ratio:.2f} times one's")
        if options.peer_python:
            compare(requests, options)
        if options.beside:
            found = [requests.gaps(options.beside) for _ in range(options.rounds)]
            longest = max(max(gaps) for gaps in found)
            middle = median(median(gaps) for gaps in found)
            print(
                f"beside a prompt of {options.beside}: the longest gap {1000 * longest:.0f} ms, "
                f"the median {1000 * middle:.0f} ms"
            )


if __name__ == "__main__":
    main()
