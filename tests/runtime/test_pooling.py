"""Embeddings: compared with the formula, in several steps, beside other requests; refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.naive import float_tensors, naive_logits
from tests.tiny_models import write_tiny_model
from tests.toy_model import BOS, ToyEngine, ids_of, toy_model, used_bytes
from trinity.errors import ContextLengthError, InputError, TrinityError
from trinity.runtime.interface import Rows
from trinity.runtime.pooling import Pooling
from trinity.runtime.scheduling.sequence import LAST

POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "last")


def pooled(states: NDArray[Any], pooling: str) -> NDArray[np.float64]:
    """The formula: one of the states or their mean, divided by its length."""
    chosen = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
    return np.asarray(chosen, np.float64) / np.linalg.norm(chosen.astype(np.float64))


def toy_states(engine: ToyEngine, ids: list[int]) -> NDArray[np.float32]:
    return np.array([engine.states_of(ids[: end + 1]) for end in range(len(ids))])


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_vectors_are_those_of_the_formula(tmp_path: Path, arch: str) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, arch=arch, num_layers=2, bias=arch == "qwen2", qk_norm=arch == "qwen3")
    rng = np.random.default_rng(3)
    texts = [rng.integers(3, 250, length).tolist() for length in (1, 7, 16, 17, 100)]
    tensors = float_tensors(trinity.open_weights(path))
    with trinity.load(path, threads=2, kv_type="f32") as model:
        for pooling in POOLINGS:
            found = model.embed(texts, pooling=pooling)
            assert found.dtype == np.float32
            for ids, vector in zip(texts, found, strict=True):
                inputs: dict[str, NDArray[np.float64]] = {}
                naive_logits(
                    tensors, model.config, ids, arch=arch, int8_activations=False, inputs=inputs
                )
                expected = pooled(inputs["output.weight"], pooling)
                assert np.abs(vector - expected).max() < 1e-6
        raw = model.embed(texts[2:3], normalize=False)[0]
        assert np.allclose(raw / np.linalg.norm(raw), model.embed(texts)[2], atol=1e-6)
        assert abs(np.linalg.norm(raw) - 1) > 1e-3


@pytest.mark.parametrize(("number", "pooling"), [(1, "mean"), (2, "cls"), (3, "last"), (0, "mean")])
def test_the_file_says_how_to_pool(tmp_path: Path, number: int, pooling: Pooling) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, num_layers=1, metadata={"llama.pooling_type": number})
    with trinity.load(path, threads=1) as model:
        assert np.array_equal(model.embed(["abc"]), model.embed(["abc"], pooling=pooling))
        others = [one for one in POOLINGS if one != pooling]
        assert not np.allclose(model.embed(["abc"]), model.embed(["abc"], pooling=others[0]))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_long_texts_come_in_pieces_beside_answers(pooling: Pooling) -> None:
    model, engine = toy_model(prefill_chunk=8)
    alone = model.generate("abc", seed=1, max_tokens=20).token_ids
    texts = ["a" * 30, "b", "abcdefgh" * 7]
    chunks = model.stream("abc", seed=1, max_tokens=20)
    first = next(chunks)
    found = model.embed(texts, pooling=pooling)
    said = [*first.token_ids, *(token for chunk in chunks for token in chunk.token_ids)]
    assert said == alone
    for text, vector in zip(texts, found, strict=True):
        expected = pooled(toy_states(engine, [BOS, *ids_of(text)]), pooling)
        assert np.abs(vector - expected).max() < 1e-6
    assert used_bytes(engine) == 0
    model.close()


def test_texts_of_the_last_priority_wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    model, engine = toy_model(prefill_chunk=8)
    counts: list[list[int]] = []
    step = engine.step

    def slow(rows: Sequence[Rows], **options: Any) -> Any:
        counts.append([len(one.tokens) for one in rows])
        time.sleep(0.01)
        return step(rows, **options)

    monkeypatch.setattr(engine, "step", slow)
    chunks = model.stream("abc", seed=1, max_tokens=20, speculative=False)
    next(chunks)
    found = model.embed(["a" * 30], priority=LAST)
    begun = counts.index([8])  # of the text's steps
    assert sum(map(sum, counts[:begun])) == len(ids_of("abc")) + 1 + 19
    assert sum(map(sum, counts[begun:])) == 31
    assert np.array_equal(found, model.embed(["a" * 30]))
    assert len(list(chunks)) >= 1
    model.close()


def test_vectors_of_an_event_loop_are_the_same() -> None:
    model, _ = toy_model()
    texts: list[Any] = ["one", ids_of("two"), "three"]
    assert np.array_equal(asyncio.run(model.aembed(texts)), model.embed(texts))
    assert model.embed([]).shape == (0, model.config.hidden_size)
    model.close()


def test_what_has_no_vector_is_refused() -> None:
    model, engine = toy_model(context_length=16)
    with pytest.raises(InputError, match="is empty"):
        model.embed([[]])
    with pytest.raises(InputError, match="list of texts"):
        model.embed("abc")
    with pytest.raises(InputError, match="pooling is 'max'"):
        model.embed(["a"], pooling="max")  # type: ignore[arg-type]
    with pytest.raises(ContextLengthError, match=r"17 tokens.* 16"):
        model.embed(["a" * 16], truncate=False)
    with pytest.raises(InputError, match="token id"):
        model.embed([[-1]])
    engine.states_of = lambda tokens: np.full(16, np.nan, np.float32)  # type: ignore[method-assign]
    with pytest.raises(TrinityError, match="not finite"):
        model.embed(["a"])
    model.close()
    with pytest.raises(InputError, match="closed"):
        model.embed(["a"])
