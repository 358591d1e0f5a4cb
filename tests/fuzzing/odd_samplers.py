"""Compare sampling with llama.cpp: the tokens of a seed, and how often each token is drawn.

    python tests/fuzzing/odd_samplers.py --peer-python PYTHON [--random 200 --first-seed 0]

PYTHON has llama-cpp-python and NumPy. Without --random, the cases are those of
tests/runtime/sampler_cases.py; with it, combinations of options and logits, each made from a seed.
A line says for each case whether a text of 200 tokens is the same, and chi-square of two samples of
--draws tokens (each with its own seed) with its limit, which equal distributions exceed in 3 of
100,000 cases. The program ends with 1 if a case differs.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import trinity  # noqa: E402
from tests.runtime.sampler_cases import (  # noqa: E402
    CASES,
    DRAWS,
    PROMPT,
    SEED,
    TOKENS,
    VOCAB,
    chi_square,
    logits_of,
)
from trinity.runtime.sampling.dry_breakers import breakers_of  # noqa: E402
from trinity.runtime.sampling.sampler import Sampler  # noqa: E402
from trinity.runtime.sampling.sampler_names import DEFAULT_ORDER  # noqa: E402
from trinity.runtime.sampling.sampling_params import SamplingParams  # noqa: E402

PEER = ROOT / "tests" / "goldens" / "llama_cpp_samplers.py"
VOCABULARY = ROOT / "tests" / "data" / "stories260K" / "Q4_0.gguf"
LARGE = 32_000  # a vocabulary, in which DRY is off: its breakers are those of VOCABULARY
ROWS = 20  # of logits; a text takes them in turns
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """Options of samplers, the logits of each token of a text, and the tokens before it."""

    name: str
    options: dict[str, Any]
    logits: Floats
    prompt: list[int]
    seed: int


def named() -> Iterator[Case]:
    """The cases of the tests."""
    logits = np.stack([logits_of(row) for row in range(TOKENS)])
    for name, options in CASES.items():
        yield Case(name, options, logits, PROMPT, SEED)


def drawn(count: int, first: int) -> Iterator[Case]:
    """Random options, in vocabularies of several sizes."""
    for seed in range(first, first + count):
        chance = random.Random(seed)
        size = chance.choice((2, 60, VOCAB, VOCAB, VOCAB, LARGE))
        spread = chance.choice((0.3, 1.0, 2.5, 2.5, 8.0))
        logits = np.random.default_rng(seed).normal(0, spread, (ROWS, size)).astype(np.float32)
        prompt = [chance.randrange(min(size, 12)) for _ in range(chance.choice((0, 5, 80)))]
        options = _options(chance, dry=size == VOCAB)
        yield Case(f"{seed}", options, logits, prompt, chance.randrange(2**32 - 1))


def _options(chance: random.Random, *, dry: bool) -> dict[str, Any]:
    """Some options; about every third sampler is on."""
    values: dict[str, list[Any]] = {
        "temperature": [0.0, 0.05, 0.4, 0.7, 1.0, 1.5, 4.0],
        "top_k": [0, 0, 1, 2, 5, 40, 100, 300],
        "top_p": [1.0, 1.0, 0.0, 0.1, 0.5, 0.9, 0.95, 0.999],
        "min_p": [0.0, 0.0, 0.001, 0.05, 0.3, 1.0],
    }
    rare: dict[str, list[Any]] = {
        "typical_p": [0.05, 0.3, 0.6, 0.95],
        "top_n_sigma": [0.0, 0.3, 1.0, 2.0, 5.0],
        "repetition_penalty": [0.5, 0.9, 1.1, 1.3, 3.0],
        "frequency_penalty": [-0.5, 0.1, 0.7],
        "presence_penalty": [-1.0, 0.3, 2.0],
        "penalty_last_n": [-1, 0, 1, 3, 50, 300],
        "dynatemp_range": [0.1, 0.5, 1.0, 3.0],
        "dynatemp_exponent": [0.0, 0.5, 1.0, 3.0],
    }
    options = {key: chance.choice(given) for key, given in values.items()}
    options |= {key: chance.choice(given) for key, given in rare.items() if chance.random() < 0.3}
    if chance.random() < 0.3:
        options["xtc_probability"] = chance.choice([0.1, 0.5, 1.0])
        options["xtc_threshold"] = chance.choice([0.0, 0.01, 0.1, 0.3, 0.5, 0.7])
    if dry and chance.random() < 0.4:
        options["dry_multiplier"] = chance.choice([0.1, 0.8, 5.0])
        options["dry_base"] = chance.choice([1.2, 1.75, 4.0])
        options["dry_allowed_length"] = chance.choice([0, 1, 2, 5])
        options["dry_penalty_last_n"] = chance.choice([0, 1, 10, 64, 256])
    order = list(DEFAULT_ORDER)
    if chance.random() < 0.3:
        chance.shuffle(order)
        options["samplers"] = order[: chance.randrange(len(order) + 1)]
    kind = chance.random()
    if kind < 0.1:
        options["samplers"] = [*options.get("samplers", order), "adaptive_p"]
        options["adaptive_target"] = chance.choice([-1.0, 0.0, 0.05, 0.3, 0.7, 1.0])
        options["adaptive_decay"] = chance.choice([0.0, 0.5, 0.9, 0.99])
    elif kind < 0.3:
        options["mirostat"] = chance.choice([1, 2])
        options["mirostat_tau"] = chance.choice([0.5, 2.0, 5.0])
        options["mirostat_eta"] = chance.choice([0.05, 0.1, 0.5])
    return options


class Peer:
    """llama.cpp's samplers, in another process."""

    def __init__(self, python: str, folder: Path) -> None:
        self._logits = folder / "logits.npy"
        self._process = subprocess.Popen(
            [python, str(PEER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def __call__(self, case: Case, draws: int) -> tuple[list[int], NDArray[np.int64]]:
        """The tokens of a text, and the count of each token."""
        np.save(self._logits, case.logits)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "options": asdict(SamplingParams(**case.options)), "prompt": case.prompt,
            "seed": case.seed, "logits": str(self._logits), "tokens": TOKENS, "draws": draws,
        }  # fmt: skip
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{case.name}: the peer ended; does it have llama-cpp-python?")
        answer = json.loads(line)
        return answer["tokens"], np.array(answer["counts"])


class Own:
    """trinity's sampler."""

    def __init__(self) -> None:
        self._tokenizer = trinity.load_tokenizer(VOCABULARY)

    def sampler(self, case: Case, seed: int) -> Sampler:
        """A sampler of the case."""
        params, size = SamplingParams(**case.options, seed=seed), case.logits.shape[1]
        breakers = None
        if size == VOCAB:
            breakers = breakers_of(self._tokenizer, params.dry_sequence_breakers, VOCAB)
        return Sampler(params, size, breakers=breakers)

    def __call__(self, case: Case, draws: int) -> tuple[list[int], NDArray[np.int64]]:
        """The tokens of a text, and, with another seed, the count of each token."""
        sampler, history = self.sampler(case, case.seed), [*case.prompt]
        for row in range(TOKENS):
            history.append(sampler.sample(case.logits[row % len(case.logits)], history))
        other, first = self.sampler(case, (case.seed + 1) % 2**32), case.logits[0]
        found = [other.sample(first, case.prompt) for _ in range(draws)]
        counts = np.bincount(found, minlength=case.logits.shape[1])
        return history[len(case.prompt) :], counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", required=True, help="a Python with llama-cpp-python")
    parser.add_argument("--random", type=int, default=0, help="number of random cases")
    parser.add_argument("--first-seed", type=int, default=0, help="of the random cases")
    parser.add_argument("--draws", type=int, default=DRAWS, help="tokens of a sample")
    options = parser.parse_args()
    cases = drawn(options.random, options.first_seed) if options.random else named()
    own, texts, distributions, count = Own(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(options.peer_python, Path(folder))
        for case in cases:
            expected, expected_counts = peer(case, options.draws)
            tokens, counts = own(case, options.draws)
            place = next((i for i in range(TOKENS) if tokens[i] != expected[i]), None)
            found, limit = chi_square(counts, expected_counts)
            text = "same text" if place is None else f"ANOTHER TEXT from token {place}"
            bad = "" if found <= limit else "ANOTHER DISTRIBUTION "
            print(f"{case.name:32} {text}, {bad}chi-square {found:.1f} of {limit:.1f}", flush=True)
            if place is not None or bad:
                print(f"  {case.options} {case.logits.shape}", flush=True)
            texts += place is not None
            distributions += bool(bad)
            count += 1
    print(f"{count} cases: {texts} other texts, {distributions} other distributions")
    return int(texts + distributions > 0)


if __name__ == "__main__":
    sys.exit(main())
