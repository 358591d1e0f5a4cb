from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.toy_model import BOS, ToyEngine, chunks_of, ids_of
from trinity.errors import ContextLengthError, InputError, TrinityError
from trinity.runtime.generation import Completion, Timings, collect
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.sampling.stop import StopMatcher

GREEDY = SamplingParams(temperature=0)
PROMPT = [BOS, *ids_of("ab")]


def completed(engine: ToyEngine, params: SamplingParams = GREEDY, **limits: Any) -> Completion:
    return collect(chunks_of(engine, PROMPT, params, GenerationLimits(**limits)))


def talker(text: str, **options: int) -> ToyEngine:
    engine = ToyEngine(**options)
    engine.says(text, after=len(PROMPT))
    return engine


def test_greedy_tokens_are_the_argmax_of_each_step() -> None:
    engine = ToyEngine()
    found = completed(engine, max_tokens=6, ignore_eos=True)
    expected = list(PROMPT)
    for _ in range(6):
        expected.append(int(engine.logits_of(expected).argmax()))
    assert found.token_ids == expected[len(PROMPT) :]
    assert found.finish_reason == "length"
    assert found.prompt_tokens == 3


def test_end_of_generation_token_stops_and_is_left_out() -> None:
    engine = talker("hello")
    found = completed(engine)
    assert (found.text, found.finish_reason) == ("hello", "stop")
    assert found.token_ids == ids_of("hello")
    assert str(found) == "hello"


def test_ignore_eos_goes_on() -> None:
    found = completed(talker("hi"), ignore_eos=True, max_tokens=5)
    assert (len(found.token_ids), found.finish_reason) == (5, "length")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_max_tokens(count: int) -> None:
    found = completed(talker("hello"), max_tokens=count)
    assert (found.text, found.finish_reason) == ("hello"[:count], "length")


def test_full_context_ends_with_length() -> None:
    engine = ToyEngine(context_length=8)
    found = completed(engine, ignore_eos=True)
    assert (len(found.token_ids), found.finish_reason) == (8 - 3, "length")


def test_a_prompt_that_fills_the_context_gets_one_token() -> None:
    found = completed(ToyEngine(context_length=3), ignore_eos=True)
    assert (len(found.token_ids), found.finish_reason) == (1, "length")


def test_prompt_longer_than_the_context() -> None:
    with pytest.raises(ContextLengthError, match=r"3 tokens.*holds 2"):
        completed(ToyEngine(context_length=2))


def test_prompt_as_long_as_the_context_gives_one_token() -> None:
    found = completed(ToyEngine(context_length=3), ignore_eos=True)
    assert (len(found.token_ids), found.finish_reason) == (1, "length")


@pytest.mark.parametrize(
    ("stop", "expected", "reason"),
    [
        ("world", "hello ", "stop"),
        (["zzz", "lo w"], "hel", "stop"),
        (["worlds"], "hello world", "stop"),
        (["d!"], "hello world", "stop"),
        (["hello"], "", "stop"),
        ("é", "hello world", "stop"),
    ],
)
def test_stop_strings(stop: Any, expected: str, reason: str) -> None:
    found = completed(talker("hello world"), stop=stop)
    assert (found.text, found.finish_reason) == (expected, reason)


def test_stop_string_ends_early() -> None:
    engine = talker("hello world")
    found = completed(engine, stop=" ")
    assert found.token_ids == ids_of("hello ")
    assert sum(map(len, engine.evaluated)) == 3 + 5


def test_held_text_comes_out_at_the_end() -> None:
    found = completed(talker("hello wor"), stop=["world"], max_tokens=9)
    assert (found.text, found.finish_reason) == ("hello wor", "length")


def test_stop_string_is_never_shown() -> None:
    engine = talker("abcabd tail")
    chunks = chunks_of(engine, PROMPT, GREEDY, GenerationLimits(stop=["abd"]))
    texts = [(c.text, c.finish_reason) for c in chunks]
    assert texts == [("abc", None), ("", "stop")]


def test_chunks_hold_whole_characters_and_all_tokens() -> None:
    engine = talker("é≈x")
    chunks = list(chunks_of(engine, PROMPT, GREEDY, GenerationLimits()))
    assert [c.text for c in chunks] == ["é", "≈", "x", ""]
    assert [len(c.token_ids) for c in chunks] == [2, 3, 1, 0]
    assert [c.finish_reason for c in chunks] == [None, None, None, "stop"]
    assert chunks[0].timings is None
    assert chunks[-1].timings is not None


def test_half_a_character_at_the_end_is_replaced() -> None:
    assert completed(talker("≈"), max_tokens=2).text == "\ufffd"


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_stop_matcher_cuts_at_the_first_completed_stop(text: str, stop: list[str]) -> None:
    matcher = StopMatcher(stop)
    shown = ""
    for size, character in enumerate(text, 1):
        shown += matcher.push(character)
        complete = [text.find(s, 0, size) for s in stop if s in text[:size]]
        if complete:
            assert matcher.stopped
            assert shown == text[: min(complete)]
            return
        assert text.startswith(shown)
    assert shown + matcher.finish() == text


def test_log_probabilities() -> None:
    engine = ToyEngine()
    found = completed(engine, max_tokens=3, logprobs=2, ignore_eos=True)
    assert found.logprobs is not None
    assert [entry.token_id for entry in found.logprobs] == found.token_ids
    logits = engine.logits_of(PROMPT).astype(np.float64)
    expected = logits.max() - math.log(np.exp(logits).sum())
    assert found.logprobs[0].logprob == pytest.approx(expected, abs=1e-5)
    best = found.logprobs[0].top[0]
    assert (best.token_id, best.logprob) == (found.token_ids[0], found.logprobs[0].logprob)
    assert best.text == bytes([best.token_id - 3]).decode(errors="replace")
    assert len(found.logprobs[0].top) == 2
    assert completed(ToyEngine(), max_tokens=2).logprobs is None
    assert completed(ToyEngine(), max_tokens=0, logprobs=0).logprobs == []


def test_log_probabilities_ignore_the_sampling_options() -> None:
    engine = ToyEngine()
    params = SamplingParams(temperature=0, logit_bias={5: 100})
    found = completed(engine, params, max_tokens=1, logprobs=0)
    assert found.token_ids == [5]
    assert found.logprobs is not None
    assert found.logprobs[0].logprob < -1


def test_cancellation_during_the_prompt() -> None:
    engine = talker("hello", prefill_chunk=1)
    cancel = threading.Event()
    engine.before_forward = lambda tokens: cancel.set()
    found = collect(chunks_of(engine, PROMPT, GREEDY, GenerationLimits(), cancel=cancel))
    assert (found.text, found.finish_reason) == ("", "cancelled")
    assert len(engine.evaluated) == 1


def test_cancellation_between_tokens() -> None:
    engine = talker("hello")
    cancel = threading.Event()
    engine.before_forward = lambda tokens: cancel.set() if tokens == ids_of("e") else None
    found = collect(chunks_of(engine, PROMPT, GREEDY, GenerationLimits(), cancel=cancel))
    assert (found.text, found.finish_reason) == ("hel", "cancelled")


def test_seed_decides_the_text() -> None:
    def text(seed: int) -> list[int]:
        params = SamplingParams(seed=seed)
        return completed(ToyEngine(), params, max_tokens=20, ignore_eos=True).token_ids

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_penalties_see_prompt_and_answer() -> None:
    ban = SamplingParams(temperature=0, presence_penalty=1000, penalty_last_n=-1)
    found = completed(ToyEngine(), ban, max_tokens=30, ignore_eos=True)
    assert len({*PROMPT, *found.token_ids}) == 33


def test_output_that_is_not_finite_is_an_error() -> None:
    engine = ToyEngine()
    engine.logits_of = lambda tokens: np.full(259, np.nan, np.float32)  # type: ignore[method-assign]
    with pytest.raises(TrinityError, match="not finite"):
        completed(engine)


def test_the_first_token_takes_no_time_of_the_answers() -> None:
    timings = completed(talker("hello"), max_tokens=1).timings
    assert timings.prompt_seconds > 0
    assert (timings.completion_tokens, timings.completion_seconds) == (1, 0)
    assert timings.tokens_per_second == 0


@pytest.mark.parametrize("most", [0, 5])
def test_a_prompt_takes_its_time_where_no_token_follows(most: int) -> None:
    engine = talker("")
    logits_of = engine.logits_of

    def slow(tokens: Sequence[int]) -> NDArray[np.float32]:
        time.sleep(0.02)
        return logits_of(tokens)

    engine.logits_of = slow  # type: ignore[method-assign]
    timings = completed(engine, max_tokens=most).timings
    assert timings.completion_tokens == 0
    assert timings.prompt_seconds > 0.02


def test_timings_count() -> None:
    engine = talker("hello")
    completed(engine, max_tokens=1)
    engine.says("hello", after=6)
    prompt = [*PROMPT, *ids_of("hel")]
    found = collect(chunks_of(engine, prompt, GREEDY, GenerationLimits()))
    timings = found.timings
    assert (timings.prompt_tokens, timings.cached_tokens) == (6, 0)  # 3 tokens are not worth it
    found = collect(chunks_of(engine, prompt, GREEDY, GenerationLimits()))
    assert found.timings.cached_tokens == 5
    assert (timings.completion_tokens, timings.decode_steps) == (5, 5)
    assert timings.prompt_seconds > 0
    assert timings.waiting_seconds > 0
    assert timings.tokens_per_second > 0
    assert Timings().tokens_per_second == Timings().prompt_tokens_per_second == 0


@pytest.mark.parametrize(
    "limits",
    [{"max_tokens": -1}, {"max_tokens": 1.5}, {"stop": [""]}, {"stop": [3]}, {"logprobs": -1}],
)
def test_bad_limits(limits: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        GenerationLimits(**limits)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [(0, 1), (2, 3), (None, len(PROMPT)), (100, 12)],  # BOS is always kept, four places never
)
@pytest.mark.parametrize("window", [0, 5])
def test_a_full_context_is_shifted(keep: int | None, kept: int, window: int) -> None:
    """Each token is the argmax after the remaining text, computed from its beginning."""
    options = {"max_tokens": 40, "ignore_eos": True, "context_shift": True, "keep": keep}
    found = completed(ToyEngine(context_length=16, window=window), **options)
    engine, text, expected = ToyEngine(context_length=16, window=window), list(PROMPT), []
    for _ in range(40):
        expected.append(int(engine.logits_of(text).argmax()))
        text.append(expected[-1])
        if len(text) == 16:
            del text[kept : kept + (17 - kept) // 2]
    assert found.token_ids == expected
    assert (found.finish_reason, found.timings.prompt_tokens) == ("length", len(PROMPT))


@pytest.mark.parametrize("limits", [{"context_shift": True}, {"max_tokens": 100}])
def test_a_full_context_ends_the_answer_otherwise(limits: dict[str, Any]) -> None:
    """Without a token limit the completion would never end."""
    found = completed(ToyEngine(context_length=16), ignore_eos=True, **limits)
    assert (len(found.token_ids), found.finish_reason) == (16 - len(PROMPT), "length")
