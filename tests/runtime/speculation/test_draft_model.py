"""A draft model proposes tokens, and the text stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trinity
from trinity.errors import InputError
from trinity.quantization import quantize
from trinity.runtime.speculation import budget as speculation_budget

PROMPT = "Prince Andrew looked at the sky, and"
OPTIONS: dict[str, Any] = {"max_tokens": 90, "ignore_eos": True}


@pytest.fixture
def generous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draft is verified, whatever it costs."""
    monkeypatch.setattr(speculation_budget, "CHEAP", 0)
    monkeypatch.setattr(speculation_budget, "STAKE", 1e6)
    monkeypatch.setattr(speculation_budget, "MOST_CREDIT", 1e6)
    run, budget = speculation_budget.DraftRun, speculation_budget.SpeculationBudget
    monkeypatch.setattr(run, "wants", lambda run, chance: run.believed.append(chance) or 1)
    monkeypatch.setattr(
        budget, "drafts", lambda self, most: (most, 1e6) if self._single else (0, 1.0)
    )


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in a type that makes it choose other tokens now and then."""
    path = tmp_path_factory.mktemp("draft") / "other.gguf"
    quantize(trinity.demo_model(), path, "Q2_K", allow_requantize=True)
    return path


@pytest.mark.full
@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 1.2, "seed": 3}], ids=["greedy", "drawn"]
)
def test_the_text_is_the_same(other: Path, generous: None, sampling: dict[str, Any]) -> None:
    with trinity.load(trinity.demo_model(), draft_model=other) as model:
        plain = model.generate(PROMPT, speculative=False, **OPTIONS, **sampling)
        drafted = model.generate(PROMPT, **OPTIONS, **sampling)
        again = model.generate(PROMPT + plain.text[:20], **OPTIONS, **sampling)
        fresh = model.generate(PROMPT + plain.text[:20], speculative=False, **OPTIONS, **sampling)
    assert plain.timings.proposed_tokens == 0
    assert drafted.token_ids == plain.token_ids
    assert 10 < drafted.timings.accepted_tokens < drafted.timings.proposed_tokens
    assert again.token_ids == fresh.token_ids
    assert again.timings.accepted_tokens > 10


def test_a_model_agrees_with_itself(generous: None) -> None:
    with trinity.load(trinity.demo_model(), draft_model=trinity.demo_model()) as model:
        found = model.generate(PROMPT, speculative=7, temperature=0, **OPTIONS).timings
    assert found.accepted_tokens > 0.9 * found.proposed_tokens
    assert found.proposed_tokens > 70


def test_a_long_prompt_is_computed_in_several_calls(generous: None) -> None:
    prompt = [5 + i % 200 for i in range(350)]
    with trinity.load(trinity.demo_model(), draft_model=trinity.demo_model()) as model:
        model.engine._draft_model._engine.prefill_chunk = 100
        found = model.generate(prompt, temperature=0, speculative=7, **OPTIONS)
        plain = model.generate(prompt, temperature=0, speculative=False, **OPTIONS)
    assert found.token_ids == plain.token_ids
    assert found.timings.accepted_tokens > 30


def test_a_text_longer_than_the_draft_models_context(generous: None, tmp_path: Path) -> None:
    """The model continues such a text without the draft model."""
    with trinity.load(trinity.demo_model(), draft_model=trinity.demo_model()) as model:
        engine = model.engine
        engine._draft_model._engine.context_length = 40
        found = model.generate(PROMPT, temperature=0, **OPTIONS)
        plain = model.generate(PROMPT, temperature=0, speculative=False, **OPTIONS)
    assert found.token_ids == plain.token_ids
    assert found.timings.proposed_tokens > 0


def test_another_vocabulary_is_refused(shared_data: Path) -> None:
    other = shared_data / "models" / "llama-2-tiny-random.gguf"
    with pytest.raises(InputError, match=r"it must have the same vocabulary, but .*: use a"):
        trinity.load(other, draft_model=trinity.demo_model())


def test_closing_frees_both(other: Path) -> None:
    model = trinity.load(trinity.demo_model(), draft_model=other)
    draft = model.engine._draft_model
    model.close()
    with pytest.raises(InputError, match="closed"):
        draft._engine.step([])
