"""Samplers compared with llama.cpp's: what they leave, the tokens of a seed, and frequencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.matrix import some
from tests.runtime.sampler_cases import (
    CASES,
    DRAWS,
    PROMPT,
    SEED,
    TOKENS,
    VOCAB,
    chi_square,
    logits_of,
)
from trinity.errors import InputError
from trinity.runtime.sampling.candidates import Candidates
from trinity.runtime.sampling.draws import Draws
from trinity.runtime.sampling.dry_breakers import Breakers, breakers_of
from trinity.runtime.sampling.penalties import Penalties
from trinity.runtime.sampling.sampler import Sampler
from trinity.runtime.sampling.sampler_chain import SamplerChain
from trinity.runtime.sampling.sampling_params import SamplingParams

DATA = Path(__file__).resolve().parents[2] / "data"
QUICK = ["everything", "mirostat 1", "adaptive_p"]


@pytest.fixture(scope="module")
def golden() -> Mapping[str, NDArray[Any]]:
    with np.load(DATA / "samplers.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def tokenizer() -> trinity.Tokenizer:
    return trinity.load_tokenizer(DATA / "stories260K" / "Q4_0.gguf")


def breakers(params: SamplingParams, tokenizer: trinity.Tokenizer) -> Breakers:
    return breakers_of(tokenizer, params.dry_sequence_breakers, VOCAB)


def sampler(options: dict[str, Any], tokenizer: trinity.Tokenizer, seed: int = SEED) -> Sampler:
    params = SamplingParams(**options, seed=seed)
    return Sampler(params, VOCAB, breakers=breakers(params, tokenizer))


@pytest.mark.parametrize("case", CASES)
def test_each_sampler_leaves_what_llama_cpps_leaves(
    case: str, golden: Mapping[str, NDArray[Any]], tokenizer: trinity.Tokenizer
) -> None:
    options = CASES[case]
    params = SamplingParams(**options, seed=SEED)
    compared = 0
    for count in range(1, len(params.samplers) + 1):
        if f"{case}: ids {count}" not in golden:
            continue
        prefix = SamplingParams(
            **{**options, "samplers": params.samplers[:count], "mirostat": 0}, seed=SEED
        )
        chain = SamplerChain(prefix, VOCAB, Penalties(prefix, VOCAB), breakers(prefix, tokenizer))
        candidates = Candidates(np.arange(VOCAB), logits_of(0), whole=True)
        for step in chain._steps:
            step(candidates, PROMPT)
        np.testing.assert_array_equal(candidates.ids, golden[f"{case}: ids {count}"])
        np.testing.assert_allclose(
            candidates.logits, golden[f"{case}: logits {count}"], rtol=2e-6, atol=2e-6
        )
        compared += 1
    assert compared or case in ("all", "none", "adaptive_p, slow") or "mirostat" in case


@pytest.mark.parametrize("case", CASES)
def test_a_seed_gives_llama_cpps_tokens(
    case: str, golden: Mapping[str, NDArray[Any]], tokenizer: trinity.Tokenizer
) -> None:
    samples, history = sampler(CASES[case], tokenizer), [*PROMPT]
    for row in range(TOKENS):
        history.append(samples.sample(logits_of(row), history))
    assert history[len(PROMPT) :] == golden[f"{case}: tokens"].tolist()


@pytest.mark.few(1)
@pytest.mark.parametrize("count", some([10_000, DRAWS], [10_000], []))
@pytest.mark.parametrize("case", some(list(CASES), QUICK, []))
def test_tokens_are_as_frequent_as_llama_cpps(
    case: str, count: int, golden: Mapping[str, NDArray[Any]], tokenizer: trinity.Tokenizer
) -> None:
    """Chi-square of two samples, with another seed."""
    samples, logits = sampler(CASES[case], tokenizer, SEED + 1), logits_of(0)
    drawn = [samples.sample(logits, PROMPT) for _ in range(count)]
    found, most = chi_square(np.bincount(drawn, minlength=VOCAB), golden[f"{case}: counts"])
    assert found <= most


def test_a_short_draw_is_one_word() -> None:
    """0.37454012 is the first number of NumPy's ``RandomState(42)`` in single precision."""
    draws = Draws(SEED)
    assert draws.next_short() == pytest.approx(0.37454012, abs=1e-7)
    assert draws.next_short() == pytest.approx(0.79654299, abs=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typical_p": 0.5, "logit_bias": dict.fromkeys(range(4), -np.inf)}, "forbid every token"),
        ({"typical_p": 0.5, "logit_bias": {1: 3e38}}, "beyond float32"),
        ({"top_n_sigma": 1.0, "repetition_penalty": 1e-300}, "beyond float32"),
        ({"dry_multiplier": 1e300, "dry_allowed_length": 0}, "forbid every token"),
    ],
)
def test_a_chain_without_a_token_is_an_error(options: dict[str, Any], message: str) -> None:
    params = SamplingParams(**options)
    none = Breakers(np.zeros(4, np.bool_), {})
    samples = Sampler(params, 4, breakers=none)
    with pytest.raises(InputError, match=message):
        samples.sample(np.full(4, 3e38, np.float32), [0, 1, 2, 3, 0])


@pytest.mark.parametrize("options", [{"mirostat": 1}, {"mirostat": 2}, {"typical_p": 0.5}])
@pytest.mark.parametrize("temperature", [0.0, 1e-300])
def test_temperature_zero_is_greedy(options: dict[str, Any], temperature: float) -> None:
    logits = np.linspace(-3, 3, 50, dtype=np.float32)
    samples = Sampler(SamplingParams(**options, temperature=temperature, top_k=1), 50)
    assert {samples.sample(logits, []) for _ in range(5)} == {49}


def test_processed_probabilities_are_those_of_the_chain() -> None:
    logits = logits_of(3)
    samples = Sampler(SamplingParams(mirostat=2, seed=1, mirostat_tau=2), VOCAB, keeps=True)
    token = samples.sample(logits, [])
    found = samples.logprob(token, VOCAB, str)
    assert sum(np.exp(one.logprob) for one in found.top) == pytest.approx(1)
    assert found.logprob in [one.logprob for one in found.top]


def test_a_mask_comes_before_the_chain(tokenizer: trinity.Tokenizer) -> None:
    """The tokens are those that a vocabulary without the others would give."""
    mask = np.arange(VOCAB) % 3 == 0
    masked, alone = sampler(CASES["everything"], tokenizer), sampler(CASES["everything"], tokenizer)
    for row in range(50):
        logits = logits_of(row)
        token = masked.sample(logits, PROMPT, mask)
        assert mask[token]
        assert token == alone.sample(logits, PROMPT, mask.copy())


@pytest.mark.parametrize("case", CASES)
def test_the_logits_needed_suffice(case: str, tokenizer: trinity.Tokenizer) -> None:
    whole, part = sampler(CASES[case], tokenizer), sampler(CASES[case], tokenizer)
    history = [*PROMPT]
    for row in range(40):
        logits = logits_of(row)
        best = part.needed(history, [], [])
        some = logits
        if best is not None:
            rest = np.setdiff1d(np.argsort(-logits, kind="stable"), best.also)
            rest = rest[np.argsort(-logits[rest], kind="stable")][: best.count]
            some = np.full(VOCAB, -np.inf, np.float32)
            some[rest], some[best.also] = logits[rest], logits[best.also]
        token = whole.sample(logits, history)
        assert part.sample(some, history) == token
        history.append(token)


ANSWERS: dict[str, dict[str, Any]] = {
    "everything": {k: v for k, v in CASES["everything"].items() if k != "top_p"},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 3.0},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 3.0},
    "adaptive_p": CASES["adaptive_p"],
    "dry of all": {"dry_multiplier": 0.8, "dry_penalty_last_n": -1, "temperature": 0.0},
}


@pytest.fixture(scope="module")
def model() -> Iterator[trinity.Model]:
    with trinity.load(trinity.demo_model(), threads=1, context_length=128) as model:
        yield model


@pytest.mark.few(1)
@pytest.mark.parametrize("case", ANSWERS)
def test_neither_speculation_nor_a_batch_changes_a_text(case: str, model: trinity.Model) -> None:
    prompt = "One, two, three. One, two, three. One, two,"
    options: dict[str, Any] = {**ANSWERS[case], "max_tokens": 40, "ignore_eos": True}
    alone = [model.generate(prompt, **options, seed=seed, speculative=False) for seed in (1, 2, 3)]
    assert model.generate(prompt, **options, seed=1).token_ids == alone[0].token_ids
    together = model.generate(prompt, n=3, **options, seed=1)
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]


@pytest.mark.parametrize("case", ANSWERS)
def test_a_grammar_holds(case: str, model: trinity.Model) -> None:
    grammar = trinity.Grammar.regex("(ab|ba){8}c")
    found = model.generate("x", grammar=grammar, seed=3, **ANSWERS[case], max_tokens=60)
    assert re.fullmatch("(ab|ba){8}c", found.text)


@pytest.mark.few(1)
@pytest.mark.parametrize("case", ["dry of all", "everything"])
def test_a_shifted_context_is_another_text(case: str, model: trinity.Model) -> None:
    options: dict[str, Any] = {**ANSWERS[case], "context_shift": True, "ignore_eos": True}
    texts = [
        model.generate("One, two,", **options, max_tokens=300, seed=4, speculative=speculative)
        for speculative in (False, True)
    ]
    assert texts[0].token_ids == texts[1].token_ids
    assert len(texts[0].token_ids) == 300
