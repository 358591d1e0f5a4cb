"""The same prompt and options give the same answer, whatever part of the prompt is cached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import trinity
from tests.conftest import GetModel
from tests.real.prompts import PROMPTS
from tests.real.texts import prose

PREFIX = 130  # tokens before each of the prompts: more than a page of the cache, 128
LENGTH = 16  # tokens of an answer
CUTS = (127, 128, 129)
Answers = list[list[int]]


@pytest.fixture(scope="module")
def path(real_model: GetModel) -> Path:
    return real_model("smollm2")


@contextmanager
def loaded(path: Path, folder: Path | None = None) -> Iterator[trinity.Model]:
    """Return a model without cached prompts, except those in ``folder``."""
    with trinity.load(path) as model:
        if folder is not None:
            model.keep_prefixes(folder, 1 << 30)
        yield model


@pytest.fixture(
    scope="module",
    params=[PROMPTS[::4], pytest.param(PROMPTS, marks=pytest.mark.full)],
    ids=["some", "all"],
)
def texts(request: pytest.FixtureRequest) -> list[str]:
    """The prompts; .ci/run takes every fourth."""
    found: list[str] = request.param
    return found


def long_prompts(model: trinity.Model, texts: list[str]) -> Answers:
    """Prompts of more than 128 tokens, no two of which begin alike."""
    before = model.tokenize(prose())
    return [
        [*before[number * 40 : number * 40 + PREFIX], *model.tokenize("\n" + prompt)]
        for number, prompt in enumerate(texts)
    ]


def answers(
    model: trinity.Model, wanted: Answers, *, temperature: float = 0.0, cache_prompt: bool = True
) -> Answers:
    """Return responses, one after the other, each with its number as seed."""
    return [
        model.generate(
            prompt, max_tokens=LENGTH, temperature=temperature, seed=seed, ignore_eos=True,
            cache_prompt=cache_prompt,
        ).token_ids
        for seed, prompt in enumerate(wanted)
    ]  # fmt: skip


def assert_same(found: Answers, expected: Answers) -> None:
    differ = [
        number
        for number, pair in enumerate(zip(found, expected, strict=True))
        if pair[0] != pair[1]
    ]
    assert differ == [], f"the answers to {len(differ)} of {len(expected)} prompts differ"


@pytest.fixture(scope="module")
def cold(path: Path, texts: list[str]) -> Answers:
    """Return responses of a model that has computed nothing else."""
    with loaded(path) as model:
        return answers(model, long_prompts(model, texts))


def test_cold_and_warm(path: Path, texts: list[str], cold: Answers) -> None:
    with loaded(path) as model:
        assert_same(answers(model, long_prompts(model, texts)), cold)
        assert model.generate(long_prompts(model, texts)[0], max_tokens=1).timings.cached_tokens > 0
        assert_same(answers(model, long_prompts(model, texts)), cold)
        assert_same(answers(model, long_prompts(model, texts), cache_prompt=False), cold)


def test_drawn_answers_cold_and_warm(path: Path, texts: list[str]) -> None:
    with loaded(path) as model:
        wanted = long_prompts(model, texts)[:20]
        first = answers(model, wanted, temperature=0.8)
        assert_same(answers(model, wanted, temperature=0.8), first)


@pytest.mark.parametrize("cut", CUTS)
def test_after_the_beginning_of_the_prompt(
    path: Path, texts: list[str], cold: Answers, cut: int
) -> None:
    with loaded(path) as model:
        wanted = long_prompts(model, texts)
        for prompt in wanted:
            model.generate(prompt[:cut], max_tokens=1, temperature=0)
        assert model.generate(wanted[0], max_tokens=1).timings.cached_tokens > 0
        assert_same(answers(model, wanted), cold)


def test_short_prompts_cold_and_warm(path: Path, texts: list[str]) -> None:
    with loaded(path) as model:
        wanted = [model.tokenize(prompt) for prompt in texts]
        first = answers(model, wanted)
        assert_same(answers(model, wanted), first)


@pytest.mark.parametrize("length", CUTS)
def test_prompts_that_end_at_a_page(path: Path, texts: list[str], length: int) -> None:
    with loaded(path) as model:
        wanted = [prompt[:length] for prompt in long_prompts(model, texts)[:20]]
        first = answers(model, wanted)
        assert_same(answers(model, wanted), first)


def test_after_a_restart(path: Path, texts: list[str], cold: Answers, tmp_path: Path) -> None:
    with loaded(path, tmp_path) as model:
        assert_same(answers(model, long_prompts(model, texts)), cold)
    with loaded(path, tmp_path) as model:
        assert model.generate(long_prompts(model, texts)[0], max_tokens=1).timings.cached_tokens > 0
        assert_same(answers(model, long_prompts(model, texts)), cold)
