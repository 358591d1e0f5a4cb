"""Which requests are in the next step, on a toy engine in this thread."""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.toy_model import ToyEngine, ToyTokenizer, chunks_of, ids_of, used_bytes
from trinity.errors import TrinityError
from trinity.runtime.generation import Completion, collect
from trinity.runtime.likelihoods.scoring import AllLogits
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.options import Request
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.scheduling import engine_loop, scheduler
from trinity.runtime.scheduling.engine_thread import EngineThread
from trinity.runtime.scheduling.inbox import Collector
from trinity.runtime.scheduling.request_state import RequestState
from trinity.runtime.scheduling.scheduler import Scheduler
from trinity.runtime.scheduling.step_costs import MANY_ROWS
from trinity_kernels.ops.kv_layout import PAGE

GREEDY = SamplingParams(temperature=0)


class Steps:
    """A scheduler whose steps the test takes; each takes as many seconds as it has rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: ToyEngine, target: float) -> None:
        self.engine = engine
        self.loop = EngineThread(engine)._loop()
        self.scheduler = Scheduler(engine, target)
        self.found: dict[str, Completion | BaseException] = {}
        self.rows: list[dict[str, int]] = []  # of every step, by sequence
        self._names: dict[int, str] = {}
        self._sinks: list[Collector] = []
        self._arrivals = 0
        self.now = 0.0
        monkeypatch.setattr(engine_loop, "perf_counter", lambda: self.now)
        self._step = engine.step
        engine.step = self.timed  # type: ignore[method-assign]

    def timed(self, rows: Any, **options: Any) -> Any:
        self.now += sum(len(part.tokens) for part in rows)
        names = {id(s.cache): self._names[id(s)] for s in self.scheduler.admitted}
        self.rows.append({names[id(part.cache)]: len(part.tokens) for part in rows})
        return self._step(rows, **options)

    def ask(
        self,
        name: str,
        prompt: list[int],
        *,
        logits: bool = False,
        client: str = "",
        **options: Any,
    ) -> Any:  # fmt: skip
        """Submit an answer, or logits."""
        self._sinks.append(Collector(lambda item: self.found.__setitem__(name, item)))
        sequence: Any
        if logits:
            out = np.empty((len(prompt), self.engine.config.vocab_size), np.float32)
            sequence = AllLogits(list(prompt), out, self._sinks[-1])
        else:
            limits = GenerationLimits(ignore_eos=True, max_tokens=options.pop("max_tokens", 5))
            sequence = RequestState(
                prompt, Request(GREEDY, limits, **options), ToyTokenizer(), self._sinks[-1],  # type: ignore[arg-type]
                vocab_size=259, context_length=self.engine.context_length,
            )  # fmt: skip
        self._arrivals += 1
        sequence.submitted(self._arrivals, client)
        self._names[id(sequence)] = name
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> dict[str, int]:
        """The rows of the next step; nothing where there is nothing to do."""
        count = len(self.rows)
        self.scheduler.drop_cancelled()
        self.loop._step(self.scheduler)
        return self.rows[-1] if len(self.rows) > count else {}

    def finish(self) -> None:
        """Take steps until all is done."""
        while self.scheduler:
            self.scheduler.drop_cancelled()
            assert self.loop._step(self.scheduler) or not self.scheduler


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(target: float = 1000.0, **sizes: int) -> Steps:
        return Steps(monkeypatch, ToyEngine(**{"context_length": 400, **sizes}), target)

    return make


def alone(prompt: list[int], count: int = 5) -> list[int]:
    engine = ToyEngine(context_length=400)
    limits = GenerationLimits(ignore_eos=True, max_tokens=count)
    return collect(chunks_of(engine, prompt, GREEDY, limits)).token_ids


def test_prompts_are_served_in_order_and_share_a_step_with_those_that_run(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    prompts = {"a": ids_of("a" * 10), "b": ids_of("b" * 3), "c": ids_of("c" * 9)}
    for name, prompt in prompts.items():
        run.ask(name, prompt)
    assert run.step() == {"a": 8}
    assert run.step() == {"a": 2, "b": 3, "c": 3}
    assert run.step() == {"a": 1, "b": 1, "c": 6}
    assert run.step() == {"a": 1, "b": 1, "c": 1}
    run.finish()
    for name, prompt in prompts.items():
        assert run.found[name].token_ids == alone(prompt)
    assert used_bytes(run.engine) == 0


def test_priorities_come_before_arrivals(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.ask("first", ids_of("a" * 8))
    assert run.step() == {"first": 8}
    run.ask("later", ids_of("b" * 8), priority=1)
    run.ask("urgent", ids_of("c" * 7), priority=-1)
    assert run.step() == {"first": 1, "urgent": 7}


def test_pieces_are_as_large_as_the_target_allows(steps: Any) -> None:
    """Here each row takes a second, and so does a step with one running row."""
    run = steps(target=41.0, prefill_chunk=256)
    run.ask("runs", ids_of("r"), max_tokens=100)
    run.step()
    run.step()
    run.ask("prompt", ids_of("p" * 350), max_tokens=1)
    pieces = []
    while "prompt" not in run.found:
        pieces.append(run.step()["prompt"])
    assert pieces[:3] == [8, 16, 32]  # at most twice what was tried
    assert all(piece in (48, 49) for piece in pieces[3:-1])
    assert sum(pieces) == 350


def test_nobody_runs_so_pieces_are_whole_chunks(steps: Any) -> None:
    run = steps(target=1.0, prefill_chunk=256)
    run.ask("prompt", ids_of("p" * 350))
    assert run.step() == {"prompt": 256}


def test_many_that_run_take_turns(steps: Any) -> None:
    run = steps(prefill_chunk=4)
    for number in range(6):
        run.ask(str(number), [10 + number], max_tokens=6)
    seen = [run.step() for _ in range(8)]
    assert all(sum(step.values()) <= 4 for step in seen)
    run.finish()
    for number in range(6):
        assert run.found[str(number)].token_ids == alone([10 + number], 6)
    per_step = [set(step) for step in run.rows]
    # Between two of its rows nobody waits for more than two steps once all run.
    for name in "012345":
        places = [i for i, step in enumerate(per_step) if name in step]
        assert max(b - a for a, b in pairwise(places)) <= 3


def test_logits_of_a_step_are_bounded(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LOGITS_BYTES", 3 * 4 * 259)
    run = steps(prefill_chunk=64)
    run.ask("a", ids_of("abcdefgh"), logits=True)
    assert [run.step()["a"] for _ in range(3)] == [3, 3, 2]


def test_a_beginning_in_common_is_evaluated_once(steps: Any) -> None:
    run = steps(prefill_chunk=256)
    common = ids_of("the same beginning of three prompts, " * 4)
    run.ask("a", [*common, 5])
    run.ask("b", [*common, 6])
    run.ask("c", [*common, 7], cache_prompt=False)
    assert run.step() == {"a": len(common) + 1, "c": 256 - len(common) - 1}
    assert run.step() == {"a": 1, "b": 1, "c": 7}
    run.finish()
    assert run.found["b"].timings.cached_tokens == len(common)
    assert run.found["c"].timings.cached_tokens == 0
    for name, last in (("a", 5), ("b", 6), ("c", 7)):
        assert run.found[name].token_ids == alone([*common, last])


def test_element_types_take_turns(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.ask("a", ids_of("a" * 8), max_tokens=20)
    run.step()
    run.ask("l", ids_of("b" * 20), logits=True)
    assert [list(run.step()) for _ in range(5)] == [["l"], ["a"], ["l"], ["a"], ["l"]]
    assert run.step() == {"a": 1}


def test_the_youngest_gives_its_pages_back_and_says_the_same(steps: Any) -> None:
    run = steps(prefill_chunk=256, pages=4)
    old, young = [20] * (PAGE + 120), [30] * 100
    run.ask("old", old, max_tokens=60)
    run.ask("young", young, max_tokens=100)
    names = [set(run.step()) for _ in range(3)]
    assert names[-1] == {"old", "young"}
    run.finish()
    assert run.found["old"].token_ids == alone(old, 60)
    assert run.found["young"].token_ids == alone(young, 100)
    lost = [step["young"] for step in run.rows if step.get("young", 0) > 1]
    assert len(lost) > 1  # its prompt, and later what it had lost
    assert used_bytes(run.engine) == 0


@pytest.mark.parametrize("window", [1, 20, 130])
def test_windowed_parts_are_claimed_like_pages(steps: Any, window: int) -> None:
    """Long prompts never lack one; running requests take them from the youngest request."""
    run = steps(prefill_chunk=64, pages=5, window=window)
    prompts = {"old": [20] * 340, "young": [30] * 100, "third": [20] * 300, "fourth": [50] * 390}
    counts = {"old": 50, "young": 200, "third": 90, "fourth": 10}
    for name, prompt in prompts.items():
        run.ask(name, prompt, max_tokens=counts[name])
    while run.scheduler:
        run.step()
        assert run.engine.pool.nbytes <= run.engine.pool.limit
        assert run.engine.pool.claimed <= run.engine.pool.limit
    for name, prompt in prompts.items():
        assert run.found[name].token_ids == alone(prompt, counts[name])
    assert [step["young"] for step in run.rows if step.get("young", 0) > 1][2:]  # it lost pages
    assert used_bytes(run.engine) == 0


def test_a_prompt_behind_a_common_beginning_takes_what_it_sees(steps: Any) -> None:
    run = steps(prefill_chunk=64, window=20)
    common = [20] * 200
    for name, last in (("a", 5), ("b", 6)):
        run.ask(name, [*common, last])
    run.finish()
    assert run.found["a"].timings.cached_tokens == 0
    assert run.found["b"].timings.cached_tokens == 3 * 64
    for name, last in (("a", 5), ("b", 6)):
        assert run.found[name].token_ids == alone([*common, last])


def test_who_waits_for_pages_is_not_overtaken(steps: Any) -> None:
    run = steps(prefill_chunk=256, pages=4)
    run.ask("runs", [20] * 250, max_tokens=4)
    run.step()
    run.ask("large", [30] * 300)
    run.ask("small", [40] * 3)
    assert run.step() == {"runs": 1}
    assert run.step() == {"runs": 1}
    run.ask("urgent", [50] * 3, priority=-1)
    assert run.step() == {"urgent": 3, "runs": 1}
    run.finish()
    order = [name for step in run.rows for name in step]
    assert order.index("large") < order.index("small")
    assert run.found["large"].token_ids == alone([30] * 300)


def test_more_than_all_pages_is_an_error(steps: Any) -> None:
    run = steps(prefill_chunk=256, pages=2)
    run.ask("large", [30] * 300)
    run.ask("grows", [40] * 250, max_tokens=20)
    run.finish()
    for name in ("large", "grows"):
        error = run.found[name]
        assert isinstance(error, TrinityError)
        assert "kv_memory" in str(error)
    assert used_bytes(run.engine) == 0


def test_refused_memory_ends_one(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = steps(prefill_chunk=256)
    run.ask("a", ids_of("abc"), max_tokens=200)
    run.step()
    take = run.engine.pool.take

    def refused(parent: Any) -> Any:
        raise MemoryError

    run.engine.pool.take = refused
    run.ask("b", ids_of("xyz"))
    run.step()
    run.engine.pool.take = take
    assert isinstance(run.found["b"], TrinityError)
    run.finish()
    assert run.found["a"].token_ids == alone(ids_of("abc"), 200)


@pytest.mark.parametrize("state", ["waiting", "prompting", "running"])
def test_cancelled_before_the_next_step(steps: Any, state: str) -> None:
    run = steps(prefill_chunk=8)
    other = run.ask("other", ids_of("a" * 8), max_tokens=3)
    sequence = run.ask("b", ids_of("b" * 12), max_tokens=100)
    for _ in range({"waiting": 1, "prompting": 2, "running": 4}[state]):
        run.step()
    assert (sequence.cache is None) == (state == "waiting")
    assert sequence.generating == (state == "running")
    sequence.cancel()
    assert "b" not in run.step()
    assert run.found["b"].finish_reason == "cancelled"
    assert run.found["b"].token_ids == alone(ids_of("b" * 12), 100)[: len(run.found["b"].token_ids)]
    run.finish()
    assert other.ended
    assert used_bytes(run.engine) == 0


def test_nobody_listens_any_more(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.ask("a", ids_of("a" * 8), max_tokens=100)
    run.step()
    run._sinks.clear()
    assert run.step() == {}
    assert used_bytes(run.engine) == 0


def test_an_error_of_one_sequence_is_its_own(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    broken = run.ask("broken", ids_of("a"))
    run.ask("other", ids_of("b"))
    broken._sampler.sample = lambda *_: 1 / 0
    run.finish()
    assert isinstance(run.found["broken"], ZeroDivisionError)
    assert run.found["other"].token_ids == alone(ids_of("b"))


def test_an_error_of_a_step_goes_to_those_in_it(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.ask("a", ids_of("a"), max_tokens=9)
    run.ask("b", ids_of("b"), max_tokens=9)
    run.step()
    run.ask("f32", ids_of("ccc"), logits=True)

    def fail(tokens: list[int]) -> None:
        raise OSError(5, "injected")

    assert run.step() == {"f32": 3}
    run.ask("waits", ids_of("d"))
    run.engine.before_forward = fail
    run.scheduler.closed = True
    run.step()
    run.engine.before_forward = lambda tokens: None
    run.scheduler.closed = False
    errors = [run.found["a"], run.found["b"]]
    assert all(isinstance(error, OSError) and "injected" in str(error) for error in errors)
    assert errors[0] is not errors[1]  # two threads raise them
    run.finish()
    assert run.found["waits"].token_ids == alone(ids_of("d"))


def test_proposals_only_for_one_that_is_alone(steps: Any) -> None:
    run = steps(prefill_chunk=64)
    text = "la la " * 40
    prompt = ids_of("la la la la ")
    run.engine.says(text, after=len(prompt))
    run.ask("a", prompt, max_tokens=100)
    for _ in range(8):
        run.step()
    assert max(step["a"] for step in run.rows[1:]) > 1
    run.ask("b", ids_of("xy"), max_tokens=100)
    run.step()
    assert all(rows == 1 for _ in range(5) for rows in run.step().values())
    run.finish()
    assert run.found["a"].text == text[:100]


def test_no_more_sequences_run_than_are_allowed(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.scheduler = Scheduler(run.engine, 1000.0, max_sequences=2)
    for name in "abc":
        run.ask(name, ids_of(name * 3), max_tokens=3)
    assert run.step() == {"a": 3, "b": 3}
    assert (run.scheduler.stats().running, run.scheduler.stats().waiting) == (2, 1)
    assert run.step() == {"a": 1, "b": 1}
    run.finish()
    for name in "abc":
        assert run.found[name].token_ids == alone(ids_of(name * 3), 3)
    assert max(len(rows) for rows in run.rows) == 2
    work = run.scheduler.stats()
    assert (work.steps, work.shares) == (len(run.rows), sum(map(len, run.rows)))


def test_progress_of_a_prompt_is_told_after_each_part(steps: Any) -> None:
    run, chunks = steps(prefill_chunk=4), []
    run.engine.says("hi", after=10)

    class Sink:
        def put(self, item: Any) -> None:
            chunks.append(item)

    sink = Sink()
    run._sinks.append(sink)
    answer = run.ask("a", ids_of("a" * 10), progress=True, max_tokens=2)
    answer._sink = weakref.ref(sink)
    run.finish()
    told = [chunk for chunk in chunks if chunk.evaluated is not None]
    assert [chunk.evaluated for chunk in told] == [0, 4, 8, 10]
    assert [chunk.timings.prompt_seconds for chunk in told] == [
        0.0,
        *sorted(chunk.timings.prompt_seconds for chunk in told[1:]),
    ]
    assert all(not chunk.token_ids and not chunk.text for chunk in told)
    rest = [chunk for chunk in chunks if chunk.evaluated is None]
    assert [chunk.timings.completion_tokens for chunk in rest] == [1, 2, 2]
    assert collect(chunks).text == "hi"


def test_a_step_has_so_many_tokens_of_prompts_at_most(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.scheduler = Scheduler(run.engine, 1000.0, batch_size=3)
    run.ask("a", ids_of("a" * 5), max_tokens=3)
    run.ask("b", ids_of("b" * 4), max_tokens=3)
    assert [run.step() for _ in range(3)] == [{"a": 3}, {"a": 2, "b": 1}, {"a": 1, "b": 3}]
    run.finish()
    assert run.found["a"].token_ids == alone(ids_of("a" * 5), 3)
    assert run.found["b"].token_ids == alone(ids_of("b" * 4), 3)


def test_the_last_priority_stands_still_while_there_are_others(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    prompts = {"row": ids_of("r" * 4), "other": ids_of("o" * 4), "live": ids_of("l" * 6)}
    run.ask("row", prompts["row"], priority=1000)
    run.ask("other", prompts["other"], priority=1000)
    assert run.step() == {"row": 4, "other": 4}
    assert run.step() == {"row": 1, "other": 1}
    run.ask("live", prompts["live"])
    assert run.scheduler.stats().waiting == 1
    assert run.step() == {"live": 6}
    assert run.step() == {"live": 1}
    assert run.scheduler.stats().running == 1  # whom nobody else has to wait for
    while "live" not in run.found:
        assert run.step() == {"live": 1}
    assert run.step() == {"row": 1, "other": 1}
    run.finish()
    for name, prompt in prompts.items():
        assert run.found[name].token_ids == alone(prompt)


def test_nobody_waits_for_a_long_step_of_the_last_priority(steps: Any) -> None:
    run = steps(prefill_chunk=128, context_length=256)
    run.ask("row", ids_of("r" * 200), priority=1000)
    assert run.step() == {"row": MANY_ROWS}
    live = ids_of("l" * 140)
    run.ask("live", live)
    assert [run.step() for _ in range(2)] == [{"live": 128}, {"live": 12}]
    run.finish()
    assert run.found["live"].token_ids == alone(live)


def test_the_last_priority_gives_up_places(steps: Any) -> None:
    run = steps(prefill_chunk=8)
    run.scheduler = Scheduler(run.engine, 1000.0, max_sequences=1)
    prompts = {"row": ids_of("r" * 4), "live": ids_of("l" * 6)}
    run.ask("row", prompts["row"], priority=1000)
    run.step()
    run.ask("live", prompts["live"])
    assert run.step() == {"live": 6}
    run.finish()
    for name, prompt in prompts.items():
        assert run.found[name].token_ids == alone(prompt)


def test_the_last_priority_gives_up_pages(steps: Any) -> None:
    run = steps(prefill_chunk=PAGE, pages=3)
    prompts = {"row": ids_of("r" * (2 * PAGE - 2)), "live": ids_of("l" * (2 * PAGE - 3))}
    run.ask("row", prompts["row"], priority=1000)
    while not run.scheduler.admitted or not run.scheduler.admitted[0].generating:
        run.step()
    run.ask("live", prompts["live"])
    assert set(run.step()) == {"live"}
    run.finish()
    for name, prompt in prompts.items():
        assert run.found[name].token_ids == alone(prompt)
