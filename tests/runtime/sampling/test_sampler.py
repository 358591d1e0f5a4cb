from __future__ import annotations

import gc
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.sampling.distribution import best, log_normalizer
from trinity.runtime.sampling.logprobs import token_logprob, token_logprobs
from trinity.runtime.sampling.sampler import Sampler
from trinity.runtime.sampling.sampling_params import SamplingParams

VOCAB = 1000


def random_logits(seed: int = 0, size: int = VOCAB) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    exponentials = np.exp(logits.astype(np.float64) - logits.max())
    return exponentials / exponentials.sum()


def allowed(logits: NDArray[np.float32], **options: Any) -> set[int]:
    """The tokens that truncation leaves, by the plain formulas on a full sort."""
    params = SamplingParams(**options)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if params.top_k:
        order = order[: params.top_k]
    probabilities = softmax(logits[order])
    kept, mass = 0, 0.0
    while kept < len(order) and (kept == 0 or mass < params.top_p):
        mass += probabilities[kept]
        kept += 1
    return {
        i
        for i, p in zip(order[:kept], probabilities, strict=False)
        if p >= params.min_p * probabilities[0]
    }


def drawn(logits: NDArray[np.float32], count: int, **options: Any) -> list[int]:
    sampler = Sampler(SamplingParams(**options), len(logits))
    return [sampler.sample(logits, []) for _ in range(count)]


OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "0.8"),
        ("temperature", True),
        ("temperature", None),
        ("top_k", -1),
        ("top_k", 4.5),
        ("top_p", 1.01),
        ("top_p", -0.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("frequency_penalty", math.inf),
        ("presence_penalty", math.nan),
        ("penalty_last_n", -2),
        ("seed", -1),
        ("seed", 1.5),
        ("logit_bias", [1, 2]),
        ("logit_bias", {"12": 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: math.inf}),
    ],
)
def test_bad_value_is_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        SamplingParams(**{name: value})  # type: ignore[arg-type]


def test_message_has_value_and_range() -> None:
    with pytest.raises(InputError, match=r"top_p is 1\.5; it must be a number from 0 to 1"):
        SamplingParams(top_p=1.5)


def test_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        SamplingParams(topk=3)  # type: ignore[call-arg]


def test_numpy_numbers_are_numbers() -> None:
    SamplingParams(temperature=np.float32(0.5), top_k=np.int64(3))  # type: ignore[arg-type]


def test_params_are_hashable_and_own_their_bias() -> None:
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[2] = 3.0
    assert params.logit_bias == {1: 2.0}
    assert isinstance(hash(params), int)


def test_greedy_takes_the_best_and_the_lowest_of_equals() -> None:
    logits = np.zeros(VOCAB, np.float32)
    logits[[7, 300, 5]] = 4
    assert drawn(logits, 2, temperature=0) == [5, 5]


def test_greedy_obeys_bias_and_penalties() -> None:
    logits = np.array([1, 2, 3, 0], np.float32)
    assert Sampler(SamplingParams(temperature=0, logit_bias={0: 5}), 4).sample(logits, []) == 0
    ban = SamplingParams(temperature=0, logit_bias={2: -math.inf})
    assert Sampler(ban, 4).sample(logits, []) == 1
    repeat = SamplingParams(temperature=0, repetition_penalty=2)
    assert Sampler(repeat, 4).sample(logits, [2]) == 1


def test_logits_are_left_alone() -> None:
    logits = random_logits()
    before = logits.copy()
    params = SamplingParams(repetition_penalty=1.3, logit_bias={3: 1.0}, seed=1)
    Sampler(params, VOCAB).sample(logits, [1, 2, 3])
    np.testing.assert_array_equal(logits, before)


def test_penalties_follow_the_formula() -> None:
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.25, presence_penalty=0.5)
    logits = np.array([3, -3, 1, 0], np.float32)
    found = Sampler(params, 4)._adjusted(logits, [0, 0, 1])
    expected = [3 / 1.5 - 2 * 0.25 - 0.5, -3 * 1.5 - 0.25 - 0.5, 1, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("last_n", "expected"), [(1, 0), (2, 2), (-1, 2), (0, 0)])
def test_penalties_look_at_the_last_tokens(last_n: int, expected: int) -> None:
    logits = np.array([3, 2.5, 2.4], np.float32)
    params = SamplingParams(temperature=0, presence_penalty=2, penalty_last_n=last_n)
    assert Sampler(params, 3).sample(logits, [0, 1]) == expected


def test_same_seed_same_tokens() -> None:
    logits = random_logits()
    assert drawn(logits, 50, seed=3) == drawn(logits, 50, seed=3)
    assert drawn(logits, 50, seed=3) != drawn(logits, 50, seed=4)


def test_numpys_global_generator_is_not_used() -> None:
    state = np.random.get_state()[1].copy()  # type: ignore[union-attr, index]
    drawn(random_logits(), 5)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # type: ignore[index]


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 5},
        {"top_k": 1},
        {"top_p": 0.5},
        {"top_p": 0.0},
        {"top_p": 0.999},
        {"min_p": 0.1},
        {"min_p": 1.0},
        {"top_k": 20, "top_p": 0.8, "min_p": 0.05},
        {"top_p": 0.95, "min_p": 0.02},
        {"top_k": 10_000, "top_p": 0.9},
        {"top_p": 0.995},
    ],
)
@pytest.mark.parametrize("scale", [0.05, 1.0])
@pytest.mark.parametrize("size", [5000, 70_000])
def test_truncation_keeps_the_right_tokens(
    options: dict[str, Any], scale: float, size: int
) -> None:
    logits = random_logits(5, size) * np.float32(scale)
    chosen = {**OFF, **options}
    ids, _ = Sampler(SamplingParams(**chosen), len(logits))._candidates(logits)
    assert set(ids.tolist()) == allowed(logits, **chosen)


@pytest.mark.parametrize("top", [0, 1, 7, 300, 1000])
def test_the_best_of_what_a_token_was_drawn_from(top: int) -> None:
    """With equal probabilities the lower ids come first."""
    logits = np.round(random_logits(3, 300))
    sampler = Sampler(SamplingParams(**OFF, temperature=1.0, seed=0), 300, keeps=True)
    token = sampler.sample(logits, [])
    found = [(one.token_id, one.logprob) for one in sampler.logprob(token, top, str).top]
    expected = np.log(softmax(logits))
    order = sorted(range(300), key=lambda i: (-logits[i], i))[:top]
    assert [token for token, _ in found] == order
    np.testing.assert_allclose([value for _, value in found], expected[order], atol=1e-5)


@pytest.mark.full
def test_draws_follow_the_probabilities() -> None:
    logits = np.array([1, 0, 2, -1], np.float32)
    count = 20_000
    tokens = drawn(logits, count, **OFF, temperature=0.7, seed=0)
    expected = softmax(logits / np.float32(0.7))
    frequencies = np.bincount(tokens, minlength=4) / count
    np.testing.assert_allclose(frequencies, expected, atol=4 * math.sqrt(0.25 / count))


@pytest.mark.parametrize("temperature", [1e-300, 1e-6])
def test_tiny_temperature_is_greedy(temperature: float) -> None:
    logits = random_logits()
    assert set(drawn(logits, 5, temperature=temperature)) == {int(logits.argmax())}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_output_that_is_not_finite_is_an_error(bad: float, temperature: float) -> None:
    logits = random_logits()
    logits[17] = bad
    with pytest.raises(TrinityError, match="not finite"):
        drawn(logits, 1, temperature=temperature)


def test_nothing_but_minus_infinity_is_an_error() -> None:
    with pytest.raises(TrinityError, match="not finite"):
        drawn(np.full(8, -np.inf, np.float32), 1)


def test_forbidding_every_token_is_an_error() -> None:
    params = SamplingParams(logit_bias=dict.fromkeys(range(4), -math.inf))
    with pytest.raises(InputError, match="forbids every token"):
        Sampler(params, 4).sample(np.zeros(4, np.float32), [])


def test_bias_that_overflows_is_an_error() -> None:
    params = SamplingParams(logit_bias={1: 3e38})
    with pytest.raises(InputError, match="beyond float32"):
        Sampler(params, 4).sample(np.full(4, 3e38, np.float32), [])


def test_bias_outside_the_vocabulary_is_an_error() -> None:
    with pytest.raises(InputError, match="token 4"):
        Sampler(SamplingParams(logit_bias={4: 1.0}), 4)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 700),
    st.integers(0, 800),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_best_is_the_front_of_a_stable_sort(size: int, k: int, levels: int, seed: int) -> None:
    logits = np.random.default_rng(seed).integers(0, levels, size).astype(np.float32)
    expected = sorted(range(size), key=lambda i: (-logits[i], i))[:k]
    assert best(logits, k).tolist() == expected


@pytest.mark.parametrize("k", [1, 40, 5000, 128_256])
@pytest.mark.parametrize("decimals", [0, 6])
def test_best_of_a_large_vocabulary(k: int, decimals: int) -> None:
    logits = random_logits(1, 128_256).round(decimals)
    np.testing.assert_array_equal(best(logits, k), np.argsort(-logits, kind="stable")[:k])
    np.testing.assert_array_equal(
        best(logits[::-2], k), np.argsort(-logits[::-2], kind="stable")[:k]
    )


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {},
        {"top_k": 0, "top_p": 0.9, "min_p": 0.0},
        {"top_k": 0, "top_p": 0.999, "min_p": 0.0},
        {"top_k": 0, "min_p": 0.1, "repetition_penalty": 1.3, "presence_penalty": 0.5},
        {"top_k": 3000, "top_p": 1.0, "logit_bias": {7: -math.inf}},
    ],
)
@pytest.mark.parametrize("decimals", [0, 6])
def test_a_large_vocabulary_is_sampled_as_by_full_sorts(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], decimals: int
) -> None:
    logits = [random_logits(seed, 20_000).round(decimals) for seed in range(20)]

    def tokens() -> list[int]:
        sampler = Sampler(SamplingParams(seed=1, **options), 20_000)
        return [sampler.sample(row, [5, 6, 7, 7]) for row in logits]

    found = tokens()
    monkeypatch.setattr(
        "trinity.runtime.sampling.sampler.best", lambda row, k: np.argsort(-row, kind="stable")[:k]
    )
    assert found == tokens()


def test_log_probabilities_are_log_softmax() -> None:
    logits = random_logits(2, 20_000)
    expected = np.log(softmax(logits))
    found = token_logprob(logits, 5, top=3)
    assert found.token_id == 5
    assert found.logprob == pytest.approx(expected[5], abs=1e-5)
    order = np.argsort(-logits)[:3]
    assert [entry.token_id for entry in found.top] == order.tolist()
    np.testing.assert_allclose([entry.logprob for entry in found.top], expected[order], atol=1e-5)
    assert log_normalizer(np.zeros(4, np.float32)) == pytest.approx(math.log(4))


def test_alternatives_are_a_sequence_of_objects_that_are_made_when_read() -> None:
    found = token_logprob(random_logits(2, 20_000), 5, 3, str)
    first, *others = found.top
    assert [first, *others] == list(found.plain().top)
    assert (first, others) == (found.top[0], list(found.top[1:]))
    assert found.top[-1] == others[-1]
    assert first.text == str(first.token_id)
    assert found == found.plain()
    assert hash(found) == hash(found.plain())
    assert repr(found) == repr(found.plain())
    assert pickle.loads(pickle.dumps(found)) == found
    assert isinstance(found.plain().top, tuple)
    assert found.top != ()
    assert token_logprob(random_logits(), 5).top == ()
    before = len(gc.get_objects())
    many = token_logprob(random_logits(2, 20_000), 5, 1000, str)
    assert len(gc.get_objects()) - before < 20
    assert len(many.top) == 1000


@pytest.mark.parametrize("size", [5, 512, 8193, 20_000])
@pytest.mark.parametrize("top", [0, 1, 20])
def test_rows_together_have_the_bits_of_each_row(size: int, top: int) -> None:
    logits = random_logits(4, 200 * size).reshape(200, size)
    logits[0, : size // 2] = 1.0  # equal ones
    logits[-1, 1] = -np.inf
    targets = [number % size for number in range(len(logits))]
    pairs = zip(logits, targets, strict=True)
    expected = [token_logprob(row, target, top, str).plain() for row, target in pairs]
    assert list(token_logprobs(logits, targets, top, str)) == expected


@pytest.mark.parametrize("masked", [False, True])
def test_logprobs_of_the_draw_are_those_behind_all_options(masked: bool) -> None:
    logits = random_logits(5)
    options: dict[str, Any] = {"top_k": 20, "top_p": 0.9, "min_p": 0.02, "temperature": 0.7}
    mask = np.arange(VOCAB) % 2 == 0 if masked else None
    sampler = Sampler(SamplingParams(seed=2, **options), VOCAB, keeps=True)
    token = sampler.sample(logits, [], mask)
    found = sampler.logprob(token, 50, str)
    seen = logits if mask is None else np.where(mask, logits, -np.inf).astype(np.float32)
    left = sorted(allowed(seen, top_k=20, top_p=0.9, min_p=0.02), key=lambda i: -seen[i])
    expected = softmax(seen[left] / np.float32(0.7))
    assert [one.token_id for one in found.top] == left
    np.testing.assert_allclose(np.exp([one.logprob for one in found.top]), expected, rtol=1e-5)
    assert found.logprob == found.top[left.index(token)].logprob
    assert (found.token_id, found.text) == (token, str(token))


def test_a_token_that_is_not_drawn_is_certain() -> None:
    sampler = Sampler(SamplingParams(temperature=0), VOCAB, keeps=True)
    token = sampler.sample(random_logits(), [])
    found = sampler.logprob(token, 5, str)
    assert (found.logprob, [one.token_id for one in found.top]) == (0.0, [token])
    other = Sampler(SamplingParams(seed=1), VOCAB)
    other.sample(random_logits(), [])
    assert other._drawn is None  # nothing is kept that nobody asks for
