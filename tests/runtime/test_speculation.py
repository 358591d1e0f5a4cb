"""Generation with speculation against generation without: the same in everything but time."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.tiny_models import write_tiny_model
from tests.toy_model import BOS, EOS, VOCAB_SIZE, ToyEngine, ToyTokenizer, ids_of, toy_model
from trinity.errors import TrinityError
from trinity.formats import open_weights
from trinity.runtime.engine import load_engine
from trinity.runtime.generation import Chunk, Limits, Progress, generate_step, stream
from trinity.runtime.sampler import SamplingParams
from trinity.runtime.session import Session
from trinity_kernels.isa import available_levels

GREEDY = SamplingParams(temperature=0)
PROMPT = [BOS, *ids_of("one two one two one two ")]


@pytest.fixture(autouse=True)
def steps_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tokens a step has: so proposals are always worth their price."""
    clock = itertools.count()
    monkeypatch.setattr("trinity.runtime.speculation.perf_counter", lambda: float(next(clock)))


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
) -> tuple[list[tuple[Any, ...]], list[int], Any]:
    """Everything that a caller sees, and what the session holds afterwards."""
    session = Session(engine)
    chunks = list(
        stream(session, ToyTokenizer(), PROMPT, params, Limits(**limits), proposals=proposals)  # type: ignore[arg-type]
    )
    seen = [(c.text, c.token_ids, c.logprobs, c.finish_reason) for c in chunks]
    return seen, list(session.tokens), chunks[-1].timings


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_answer_is_the_same(data: st.DataObject) -> None:
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
    plain, held, timings = generated(Babbler(context_length=context), 0, params, **limits)
    proposals = draw(st.integers(1, 20))
    found, kept, spent = generated(Babbler(context_length=context), proposals, params, **limits)
    assert found == plain
    assert kept == held
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
    seen, _, timings = generated(engine, 15)
    assert "".join(piece[0] for piece in seen) == text
    steps = len(engine.evaluated) - 1
    assert steps < len(text) / 3
    assert timings.accepted_tokens == timings.decode_steps - steps
    assert timings.accepted_tokens > 0.8 * timings.proposed_tokens
    # No step evaluates more than what is still wanted.
    engine.evaluated.clear()
    generated(engine, 15, max_tokens=130)
    assert sum(map(len, engine.evaluated)) <= len(PROMPT) + 130 + timings.proposed_tokens


def test_wrong_proposals_are_forgotten() -> None:
    engine = Babbler()
    _, _, timings = generated(engine, 15, ignore_eos=True, max_tokens=120)
    assert 10 < timings.accepted_tokens < timings.proposed_tokens - 10


@pytest.mark.parametrize("after", range(0, 60, 7))
def test_cancellation_between_tokens(after: int) -> None:
    def cancelled(proposals: int) -> tuple[list[Chunk], list[int]]:
        cancel = threading.Event()
        session, chunks = Session(Babbler()), []
        if after == 0:
            cancel.set()
        for chunk in stream(
            session, ToyTokenizer(), PROMPT, GREEDY, Limits(),  # type: ignore[arg-type]
            cancel=cancel, proposals=proposals,
        ):  # fmt: skip
            chunks.append((chunk.text, chunk.token_ids, chunk.finish_reason))
            if len(chunks) == after:
                cancel.set()
        return chunks, list(session.tokens)  # type: ignore[return-value]

    assert cancelled(15) == cancelled(0)


@pytest.mark.parametrize("after", [1, 20, 33])
def test_a_stream_that_is_left_early(after: int) -> None:
    held = []
    for proposals in (0, 15):
        session = Session(Babbler())
        steps = generate_step(session, PROMPT, GREEDY, Limits(), proposals=proposals)
        for _ in range(after):
            next(steps)
        steps.close()
        held.append(list(session.tokens))
    assert held[0] == held[1]


@pytest.mark.parametrize("at", range(1, 12))
def test_an_interrupted_step_leaves_a_usable_session(at: int) -> None:
    engine = Babbler()
    session = Session(engine)
    steps = itertools.count()

    def interrupt(tokens: list[int]) -> None:
        if next(steps) == at:
            raise KeyboardInterrupt

    engine.before_forward = interrupt
    with pytest.raises(KeyboardInterrupt):
        list(generate_step(session, PROMPT, GREEDY, Limits(), proposals=15))
    engine.before_forward = lambda tokens: None
    again = list(generate_step(session, PROMPT, GREEDY, Limits(), proposals=15))
    assert again == list(generate_step(Session(Babbler()), PROMPT, GREEDY, Limits()))


@pytest.mark.parametrize("broken", [30, 37, 44])
def test_an_error_comes_after_the_same_tokens(broken: int) -> None:
    def tokens(proposals: int) -> list[int]:
        engine, found = Babbler(), []
        good = engine.logits_of
        engine.logits_of = lambda tokens: good(tokens) * (np.nan if len(tokens) == broken else 1)  # type: ignore[method-assign]
        steps = generate_step(Session(engine), PROMPT, GREEDY, Limits(), proposals=proposals)
        with pytest.raises(TrinityError, match="not finite"):
            found.extend(token for token, _ in steps)
        return found

    assert tokens(15) == tokens(0)


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


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("type_name", ["Q4_0", "Q8_0", "I2_S", "F16"])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0.3, seed=4)])
def test_real_engines_give_the_same_tokens(
    tmp_path: Path, level: str, type_name: str, params: SamplingParams
) -> None:
    path = tmp_path / "m.gguf"
    arch = "bitnet-b1.58" if type_name == "I2_S" else "llama"
    write_tiny_model(path, arch=arch, type=type_name, context_length=400)
    engine = load_engine(open_weights(path), isa=level, threads=2)
    prompt = [1, *range(200, 230)] * 5
    answers = []
    for proposals in (0, 15, 2):
        progress = Progress()
        steps = generate_step(
            Session(engine), prompt, params, Limits(max_tokens=120, logprobs=1, ignore_eos=True),
            progress=progress, proposals=proposals,
        )  # fmt: skip
        answers.append(list(steps))
        timings = progress.timings
        assert timings.decode_steps == 119
        if params is GREEDY and proposals:
            assert timings.accepted_tokens > 20
    engine.close()
    assert answers[0] == answers[1] == answers[2]
