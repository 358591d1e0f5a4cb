"""Measure the cost of batch invariance: prompts give the same bits however they are divided.

For each number of rows it compares the kernels for many rows with the fastest kernels for that
number, interleaved:

    python scripts/bench/bench_prompt_steps.py build/B.gguf --rows 1 --rows 16 --rounds 9

Then it measures the second turn of a chat, after a response of some tokens, with and without
--reuse-answers. It prints the least and the median processor time of the process, which other work
on the machine hardly affects if one thread computes.
"""

from __future__ import annotations

import argparse
import statistics
from time import process_time

import numpy as np

import trinity
from trinity.model import Model
from trinity.providers import open_weights
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows

DEPTH = 64  # positions before the rows


def step_seconds(engine: CPUEngine, count: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of steps of ``count`` rows: as a prompt, and with the fastest kernels."""
    tokens = np.random.default_rng(1).integers(10, engine.config.vocab_size, DEPTH + count)
    cache = engine.new_cache()
    engine.step([Rows(cache, tokens[:DEPTH], prompt=True)])
    cache.keep(DEPTH)
    found: dict[bool, list[float]] = {True: [], False: []}
    for round in range(2 * (rounds + 1)):
        prompt = round % 2 == 0
        began = process_time()
        engine.step([Rows(cache, tokens[DEPTH:], prompt=prompt)])
        if round > 1:
            found[prompt].append(process_time() - began)
        cache.truncate(DEPTH)
    cache.release()
    return found[True], found[False]


def turn_seconds(model: Model, history: int, answer: int, more: int, seed: int) -> float:
    """Return the seconds until the first token of a chat's second turn."""
    rng = np.random.default_rng(seed)
    prompt, further = (
        [int(i) for i in rng.integers(10, model.config.vocab_size, count)]
        for count in (history, more)
    )
    tokens = model.generate(prompt, max_tokens=answer, temperature=0, ignore_eos=True).token_ids
    began = process_time()
    model.generate([*prompt, *tokens, *further], max_tokens=1, temperature=0)
    return process_time() - began


def main() -> None:
    """Print medians and extremes in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--isa")
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--answer", type=int, default=200, help="tokens of the chat's first answer")
    options = parser.parse_args()
    loaded = {"threads": options.threads, "context_length": 1024, "isa": options.isa}
    with open_weights(options.model) as provider:
        engine = load_engine(provider, **loaded)
        for count in options.rows or (1, 2, 4, 16, 17, 64, 512):
            times = step_seconds(engine, count, options.rounds)
            line = " / ".join(f"{1e3 * min(t):.2f} {1e3 * statistics.median(t):.2f}" for t in times)
            print(f"{count} rows: least and median of a prompt's step / the fastest: {line} ms")
        engine.close()
    if not options.answer:
        return
    models = [trinity.load(options.model, reuse_answers=reuse, **loaded) for reuse in (False, True)]
    found: list[list[float]] = [[], []]
    for seed in range(options.rounds):
        for model, times_of in zip(models, found, strict=True):
            times_of.append(turn_seconds(model, 100, options.answer, 20, seed))
    for name, times_of in zip(("evaluated anew", "reused"), found, strict=True):
        least, median = 1e3 * min(times_of), 1e3 * statistics.median(times_of)
        print(f"second turn, an answer of {options.answer} {name}: {least:.1f} {median:.1f} ms")
    for model in models:
        model.close()


if __name__ == "__main__":
    main()
