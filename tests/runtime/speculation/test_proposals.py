"""Speculative decoding gives the same text and counts as decoding without it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.matrix import parts
from tests.tiny_models import write_tiny_model
from tests.toy_model import BOS, EOS, VOCAB_SIZE, ToyEngine, chunks_of, ids_of, toy_model
from trinity.errors import TrinityError
from trinity.providers import open_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.generation import collect
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.speculation.budget import SpeculationBudget
from trinity.runtime.speculation.proposals import MOST_INDEXED, NgramIndex, Proposer
from trinity_kernels.isa import available_levels

GREEDY = SamplingParams(temperature=0)
PROMPT = [BOS, *ids_of("one two one two one two ")]


@pytest.fixture(autouse=True)
def steps_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens a step has: so proposals are always worth their price."""
    clock = itertools.count()
    monkeypatch.setattr(
        "trinity.runtime.scheduling.engine_loop.perf_counter", lambda: float(next(clock))
    )


class Babbler(ToyEngine):
    """Mostly repeats what followed its last two tokens; now and then it changes its mind."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(**{"context_length": 200, "prefill_chunk": 64, **sizes})

    def logits_of(self, tokens: Any) -> NDArray[np.float32]:
        rng = np.random.default_rng([*tokens[-2:], len(tokens) // 13])
        logits = np.full(VOCAB_SIZE, -20, np.float32)
        logits[rng.choice(ids_of("abc de"), 2)] = 5, 3
        logits[EOS] = 3.5 if len(tokens) > 90 else -20
        return logits


def generated(
    engine: ToyEngine, proposals: int, params: SamplingParams = GREEDY, **limits: Any
) -> tuple[list[tuple[Any, ...]], Any]:
    """Everything that a caller sees."""
    chunks = list(
        chunks_of(engine, PROMPT, params, GenerationLimits(**limits), speculative=proposals)
    )
    seen = [(c.text, c.token_ids, c.logprobs, c.finish_reason) for c in chunks]
    return seen, chunks[-1].timings


@pytest.mark.parametrize("part", parts(3))
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_the_answer_is_the_same(part: int, data: st.DataObject) -> None:
    draw = data.draw
    params = SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.5, 1.5])),
        seed=draw(st.integers(0, 5)),
        top_k=draw(st.sampled_from([0, 2, 40])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.05])),
        presence_penalty=draw(st.sampled_from([0.0, 0.1])),
        penalty_last_n=draw(st.sampled_from([64, -1])),
    )
    limits = {
        "max_tokens": draw(st.none() | st.integers(0, 120)),
        "stop": draw(st.sampled_from([(), ("ab",), ("c c", "ed"), ("aaaa",)])),
        "ignore_eos": draw(st.booleans()),
        "logprobs": draw(st.sampled_from([None, 0, 2])),
    }
    context = draw(st.sampled_from([40, 200]))
    plain, timings = generated(Babbler(context_length=context), 0, params, **limits)
    proposals = draw(st.integers(1, 20))
    found, spent = generated(Babbler(context_length=context), proposals, params, **limits)
    assert found == plain
    assert (spent.completion_tokens, spent.decode_steps) == (
        timings.completion_tokens,
        timings.decode_steps,
    )
    assert timings.proposed_tokens == 0
    assert spent.accepted_tokens <= spent.proposed_tokens


def test_what_repeats_takes_fewer_steps() -> None:
    engine = ToyEngine(context_length=200, prefill_chunk=64)
    text = "round and round it goes. " * 6
    engine.says(text, after=len(PROMPT))
    seen, timings = generated(engine, 15)
    assert "".join(piece[0] for piece in seen) == text
    steps = len(engine.evaluated) - 1
    assert steps < len(text) / 3
    assert timings.accepted_tokens == timings.decode_steps - steps
    assert timings.accepted_tokens > 0.8 * timings.proposed_tokens
    # No step evaluates more than what is still wanted.
    engine.evaluated.clear()
    _, timings = generated(engine, 15, max_tokens=130)
    assert sum(map(len, engine.evaluated)) <= 130 + timings.proposed_tokens
    assert max(map(len, engine.evaluated)) > 10


def test_wrong_proposals_are_forgotten() -> None:
    engine = Babbler()
    _, timings = generated(engine, 15, ignore_eos=True, max_tokens=120)
    assert 10 < timings.accepted_tokens < timings.proposed_tokens - 10


@pytest.mark.parametrize("after", range(0, 60, 7))
def test_a_cancelled_answer_is_a_part_of_the_whole(after: int) -> None:
    class Patience:
        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > after

    limits = GenerationLimits(ignore_eos=True)
    whole = collect(chunks_of(Babbler(), PROMPT, GREEDY, limits))
    for proposals in (0, 15):
        found = collect(chunks_of(
            Babbler(), PROMPT, GREEDY, limits, speculative=proposals, cancel=Patience()
        ))  # fmt: skip
        assert found.token_ids == whole.token_ids[: len(found.token_ids)]
        assert len(found.token_ids) >= max(after - 2, 0)
        if not proposals:
            assert found.finish_reason == "cancelled"
            assert len(found.token_ids) <= after


@pytest.mark.parametrize("at", range(1, 12))
def test_a_step_that_fails_leaves_nothing_wrong(at: int) -> None:
    engine = Babbler()
    steps = itertools.count()

    def interrupt(tokens: list[int]) -> None:
        if next(steps) == at:
            raise KeyboardInterrupt

    engine.before_forward = interrupt
    with pytest.raises(KeyboardInterrupt):
        generated(engine, 15)
    engine.before_forward = lambda tokens: None
    again, _ = generated(engine, 15)
    assert again == generated(Babbler(), 0)[0]


@pytest.mark.parametrize("broken", [30, 37, 44])
def test_an_error_comes_after_the_same_tokens(broken: int) -> None:
    def tokens(proposals: int) -> list[int]:
        engine, found = Babbler(), []
        good = engine.logits_of
        engine.logits_of = lambda tokens: good(tokens) * (np.nan if len(tokens) == broken else 1)  # type: ignore[method-assign]
        chunks = chunks_of(engine, PROMPT, GREEDY, GenerationLimits(), speculative=proposals)
        with pytest.raises(TrinityError, match="not finite"):
            found.extend(token for chunk in chunks for token in chunk.token_ids)
        return found

    assert tokens(15) == tokens(0)


def test_two_at_once_propose_nothing_and_say_the_same() -> None:
    model, engine = toy_model(context_length=300, prefill_chunk=64)
    engine.logits_of = Babbler().logits_of  # type: ignore[method-assign]
    alone = [model.generate(PROMPT, seed=i, max_tokens=60) for i in range(2)]
    assert max(len(step) for step in engine.evaluated[1:]) > 1
    engine.evaluated.clear()
    both = model.generate(PROMPT, n=2, seed=0, max_tokens=60, ignore_eos=True)
    for one, other in zip(alone, both, strict=True):
        assert other.token_ids[: len(one.token_ids)] == one.token_ids
        assert other.timings.proposed_tokens < 15


def test_what_came_is_learned_once() -> None:
    """This includes tokens that came while other requests ran."""
    budget, learned = SpeculationBudget(), []
    budget.single(1.0)
    budget.learn = lambda *seen: learned.append(seen)  # type: ignore[method-assign]
    proposer = Proposer()
    text = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert proposer.propose(text, budget, 2) == [4, 5]
    text += [4, 7, 8]
    assert proposer.propose(text, budget, 2) == []
    assert learned == [(3, 1, True)]
    assert proposer.propose([*text, 9], budget, 0) == []
    assert len(learned) == 1


def test_a_long_text_is_indexed_over_several_steps() -> None:
    """A step indexes 2,048 of 20,000 tokens, so other requests do not wait for the rest."""
    proposer, budget = Proposer(), SpeculationBudget()
    text = [*range(10_000), *range(10_000)]
    indexed = []
    while not indexed or indexed[-1] < len(text):
        proposer.propose(text, budget, 4)
        assert proposer._index is not None
        indexed.append(len(proposer._index.tokens))
    assert max(np.diff([0, *indexed])) == MOST_INDEXED
    # Once it knows all of it, it proposes as one that was made of it at once.
    assert proposer._index.match() == NgramIndex(text).match() == (16, 10_000)
    proposer.propose(text, budget, 4)
    assert proposer._proposal[:1] == [text[10_000 % len(text)]]


def test_conversations_are_the_same() -> None:
    def answers(speculative: bool | int) -> list[Any]:
        model, engine = toy_model(context_length=300, prefill_chunk=64)
        engine.logits_of = Babbler().logits_of  # type: ignore[method-assign]
        messages, found = [], []
        for turn in ("ab ab ab", "c c c c", "ab ab ab"):
            messages.append({"role": "user", "content": turn})
            answer = model.chat(
                messages, max_tokens=40, temperature=0.5, seed=1, speculative=speculative
            )
            messages.append({"role": "assistant", "content": answer.text})
            timings = answer.timings
            found.append((answer.text, answer.token_ids, answer.finish_reason))
            found.append((timings.prompt_tokens, timings.cached_tokens))
        return found

    assert answers(True) == answers(False) == answers(3)


@pytest.mark.few(1)
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("type_name", ["Q4_0", "Q8_0", "I2_S", "F16"])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.3, seed=4)])
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_real_engines_give_the_same_tokens(
    tmp_path: Path, level: str, type_name: str, params: SamplingParams, kv_type: str
) -> None:
    path = tmp_path / "m.gguf"
    arch = "bitnet-b1.58" if type_name == "I2_S" else "llama"
    write_tiny_model(path, arch=arch, type=type_name, context_length=400)
    engine = load_engine(open_weights(path), isa=level, threads=2, kv_type=kv_type)
    prompt = [1, *range(200, 230)] * 5
    answers = []
    for proposals in (0, 15, 2):
        found = collect(chunks_of(
            engine, prompt, params, GenerationLimits(max_tokens=120, logprobs=1, ignore_eos=True),
            Plain(), speculative=proposals, cache_prompt=False,
        ))  # fmt: skip
        answers.append((found.token_ids, found.logprobs))
        assert found.timings.decode_steps == 119
        if params is GREEDY and proposals:
            assert found.timings.accepted_tokens > 20
    engine.close()
    assert answers[0] == answers[1] == answers[2]


class Plain:
    """A tokenizer for any vocabulary, whose tokens have no text."""

    eog_ids = frozenset[int]()
    bos_id = None

    def stream(self, *, skip_special: bool = True) -> Plain:
        return self

    def push(self, token: int) -> str:
        return ""

    def bytes_of(self, token: int) -> bytes:
        return b""

    def finish(self) -> str:
        return ""
