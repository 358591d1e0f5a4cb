"""A response does not depend on the cache or on how its prompt is divided into steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.expert_models import write_expert_model
from tests.matrix import some
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.quantization.quantization import quantize
from trinity.runtime.pages import slot_file
from trinity.runtime.pages.page import Domain
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.kv_layout import PAGE

CONTEXT, ANSWER = 512, 8
LENGTHS = (1, 2, 5, 20, PAGE, 2 * PAGE + 40)
# Where an earlier text ends that begins like the prompt of ``LONG`` tokens.
LONG, CUTS = 2 * PAGE + 20, (9, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 3, 2 * PAGE + 19)
# Rows of a step: one, as many as dot products, int8 tiles and bfloat16 tiles take.
STEPS = (1, 3, 4, 16, 17, 100)
# A prompt's products round otherwise than a single token's, but for ternary weights.
TYPES = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16", "TQ2_0")
# Quantized from float32: with windows, latent keys, experts, recurrent states.
FAMILIES = ("gemma3", "gpt_oss", "deepseek_v2", "qwen3_moe", "falcon_h1", "lfm2_moe", "qwen3_next")
RECURRENT = FAMILIES[-3:]
KINDS = (*TYPES, "experts", *FAMILIES)
FEW = ("Q4_0", "gemma3", "qwen3_next")  # of `make test`

Said = tuple[list[int], list[float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=some(KINDS, FEW))
def path(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A small model of a kind."""
    kind = request.param
    path = folder / f"{kind}.gguf"
    if path.exists():
        return path
    if kind in TYPES:
        arch = "bitnet" if kind == "TQ2_0" else "llama"
        write_tiny_model(path, arch=arch, type=kind, hidden_size=256, context_length=CONTEXT)
    elif kind == "experts":
        write_expert_model(path, type="Q4_0")
    else:
        shared: Path = request.getfixturevalue("shared_data")
        quantize(shared / "architectures" / kind / "model.gguf", path, "Q8_0")
    return path


@pytest.fixture(params=available_levels())
def model(request: pytest.FixtureRequest, path: Path) -> Iterator[Model]:
    with load(path, isa=request.param) as model:
        yield model


def load(path: Path, **options: Any) -> Model:
    return trinity.load(path, threads=1, context_length=CONTEXT, **options)


def text(model: Model, length: int, seed: int) -> list[int]:
    tokens = np.random.default_rng(seed).integers(10, model.config.vocab_size, length)
    return [int(token) for token in tokens]


def said(model: Model, prompt: list[int], **more: Any) -> Said:
    """The tokens of an answer, and what depends on all bits of the logits of each."""
    options = {"max_tokens": ANSWER, "temperature": 0, "ignore_eos": True, "logprobs": 0, **more}
    found = model.generate(prompt, **options)
    return found.token_ids, [one.logprob for one in found.logprobs or ()]


def cold(model: Model, prompt: list[int]) -> Said:
    """With nothing cached."""
    return said(model, prompt, cache_prompt=False)


def test_twice(model: Model) -> None:
    for length in LENGTHS:
        prompt = text(model, length, length)
        expected = cold(model, prompt)
        assert len(expected[1]) == ANSWER
        assert [said(model, prompt) for _ in range(3)] == [expected] * 3, length


@pytest.mark.few(6)
@pytest.mark.parametrize("cut", CUTS)
def test_behind_another_texts_beginning(model: Model, cut: int) -> None:
    prompt = text(model, LONG, cut)
    expected = cold(model, prompt)
    said(model, prompt[:cut])
    found = model.generate(prompt, max_tokens=1)
    least = (cut - 1) // PAGE * PAGE if model.engine.pool.recurrent else cut - 4
    assert found.timings.cached_tokens >= least
    assert said(model, prompt) == expected


def test_in_any_slot(model: Model) -> None:
    prompt = text(model, PAGE + 30, 1)
    expected = cold(model, prompt)
    for slot in (0, 1, 0, 1):
        assert said(model, prompt, slot=slot) == expected


@pytest.mark.few(1)
@pytest.mark.parametrize("level", available_levels())
def test_after_a_restart(path: Path, tmp_path: Path, level: str) -> None:
    found, cached = [], []
    for _ in range(3):
        with load(path, isa=level) as model:
            prompt = text(model, LONG, 2)
            model.keep_prefixes(tmp_path, 1 << 30)
            found.append(said(model, prompt))
            cached.append(model.generate(text(model, LONG, 2)).timings.cached_tokens)
    with load(path, isa=level) as model:
        expected = cold(model, prompt)
        said(model, prompt, slot=3)
        with model.exclusive() as engine:
            slot_file.save(engine, Domain(3), str(tmp_path / "slot"))
    assert found == [expected] * 3
    with load(path, isa=level) as model:
        with model.exclusive() as engine:
            slot_file.restore(engine, Domain(5), str(tmp_path / "slot"))
        assert said(model, prompt, slot=5) == expected


@pytest.mark.few(1)
@pytest.mark.parametrize("level", available_levels())
def test_in_steps_of_any_size(path: Path, level: str) -> None:
    found = {}
    for size in STEPS:
        with load(path, isa=level, batch_size=size) as model:
            prompt = text(model, PAGE + 40, 3)
            found[size] = cold(model, prompt)
    assert all(one == found[STEPS[-1]] for one in found.values()), found.keys()


@pytest.mark.parametrize("level", available_levels())
def test_where_the_context_is_shifted(path: Path, level: str) -> None:
    with trinity.load(path, threads=2, context_length=40, isa=level) as model:
        prompt, more = text(model, 9, 6), {"max_tokens": 70, "context_shift": True}
        expected = said(model, prompt, cache_prompt=False, **more)
        assert len(expected[0]) == 70
        assert [said(model, prompt, **more) for _ in range(2)] == [expected] * 2


def test_after_other_turns_of_a_chat(model: Model) -> None:
    history = text(model, 30, 4)
    for turn in range(4):
        expected = cold(model, history)
        tokens, _ = found = said(model, history)
        assert found == expected, turn
        history += [*tokens, *text(model, 7 + 40 * turn, turn)]


def test_where_the_prompt_was_evaluated_beside_other_requests(model: Model) -> None:
    """Other requests' rows and completions have no effect on later results."""
    prompts = [text(model, length, length) for length in (5, 20, 60, PAGE + 9, LONG)]
    expected = [cold(model, prompt) for prompt in prompts]
    for _ in model.generate_batch(prompts, max_tokens=40, temperature=0, ignore_eos=True):
        pass
    assert [said(model, prompt) for prompt in prompts] == expected


def test_vectors_of_texts_in_one_step(model: Model) -> None:
    texts = [text(model, length, length) for length in (3, 9, 40)]
    together = model.embed(texts)
    for ids, vector in zip(texts, together, strict=True):
        assert np.array_equal(model.embed([ids])[0], vector)


def test_answers_are_reused_where_that_is_asked_for(folder: Path) -> None:
    path = folder / "reused.gguf"
    write_tiny_model(path, type="Q4_0", hidden_size=256, context_length=CONTEXT)
    for reuse in (False, True):
        with load(path, reuse_answers=reuse) as model:
            prompt = text(model, 20, 5)
            tokens, _ = said(model, prompt)
            again = model.generate([*prompt, *tokens, 11, 12], max_tokens=1)
            same_bits = model.engine.rounding == "single"
            whole = len(prompt) + ANSWER - 1
            assert again.timings.cached_tokens == (whole if reuse or same_bits else len(prompt))
