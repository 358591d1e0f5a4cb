"""Encoders, embedders and rerankers compared with transformers: tokens, states, vectors, scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from trinity.errors import ContextLengthError, InputError
from trinity.model import Model
from trinity.runtime.interface import Rows
from trinity_kernels.isa import available_levels

EMBEDDERS = (
    "bert_cls", "bert_mean", "nomic_bert", "xlm_roberta", "gemma_embedding", "qwen3_embedding",
)  # fmt: skip
RERANKERS = ("bert_rerank", "xlm_roberta_rerank")
ENCODERS = tuple(name for name in EMBEDDERS if name != "qwen3_embedding")


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "encoders"


@pytest.fixture(params=available_levels())
def how(request: pytest.FixtureRequest) -> dict[str, Any]:
    isa: str = request.param
    threads = 1 if isa == "portable" else 2
    return {"isa": isa, "threads": threads, "kv_type": "f32"}


def golden(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name / "golden.json").read_text())
    return found


def states(model: Model, ids: list[int], second: int | None = None) -> NDArray[np.float32]:
    out = np.empty((len(ids), model.config.hidden_size), np.float32)
    with model.exclusive() as engine:
        cache = engine.new_cache("f32")
        engine.step([Rows(cache, ids, 0, out, second)])
        cache.release()
    return out


@pytest.mark.parametrize("name", EMBEDDERS)
def test_states_and_vectors_are_those_of_transformers(
    folder: Path, name: str, how: dict[str, Any]
) -> None:
    with trinity.load(folder / name / "model.gguf", **how) as model:
        texts = golden(folder, name)["texts"]
        found = model.embed([one["text"] for one in texts])
        expected = np.load(folder / name / "embeddings.npy")
        assert (found * expected).sum(axis=1).min() >= 0.99999
        assert np.abs(found - expected).max() < 1e-5
        for number, one in enumerate(texts):
            ids = model.tokenizer.encode(one["text"], add_eos=True)
            assert ids == one["ids"]
            hidden = np.load(folder / name / f"hidden_{number}.npy").reshape(len(ids), -1)
            assert np.abs(states(model, ids) - hidden).max() < 1e-4


@pytest.mark.parametrize("name", RERANKERS)
def test_scores_are_those_of_transformers(folder: Path, name: str, how: dict[str, Any]) -> None:
    """BERT's classifier was trained after a pooler, which the converter drops."""
    key = "score_no_pooler" if name == "bert_rerank" else "score"
    notes: list[str] = []
    with trinity.load(folder / name / "model.gguf", **how, progress=notes.append) as model:
        assert any("without the layer before it" in n for n in notes) == (name == "bert_rerank")
        for number, one in enumerate(golden(folder, name)["texts"]):
            ids, second = model.tokenizer.encode_pair(*one["text"])
            assert ids == one["ids"]
            hidden = np.load(folder / name / f"hidden_{number}.npy").reshape(len(ids), -1)
            assert np.abs(states(model, ids, second) - hidden).max() < 1e-4
            assert abs(model.rank(one["text"][0], [one["text"][1]])[0] - one[key]) < 1e-4


@pytest.mark.parametrize("name", EMBEDDERS)
def test_texts_side_by_side_have_the_vectors_that_they_have_alone(folder: Path, name: str) -> None:
    texts = [one["text"] for one in golden(folder, name)["texts"]]
    with trinity.load(folder / name / "model.gguf", threads=2) as model:
        alone = np.concatenate([model.embed([text]) for text in texts])
        assert np.abs(model.embed(texts * 9) - np.tile(alone, (9, 1))).max() < 1e-5
    options: dict[str, Any] = {"batch_size": 4, "max_sequences": 2, "batch_invariant": True}
    with trinity.load(folder / name / "model.gguf", threads=1, **options) as model:
        same = np.concatenate([model.embed([text]) for text in texts])
        assert np.array_equal(model.embed(texts * 3), np.tile(same, (3, 1)))
        assert np.abs(same - alone).max() < 1e-5


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_write_no_text(folder: Path, name: str) -> None:
    with trinity.load(folder / name / "model.gguf", threads=1) as model:
        assert model.encodes
        for call in (
            lambda: model.generate("a"),
            lambda: list(model.stream("a")),
            lambda: model.logits([5]),
            lambda: model.perplexity("a"),
            lambda: model.chat([{"role": "user", "content": "a"}]),
        ):
            with pytest.raises(InputError, match=r"gguf: the model .* is an encoder, .* use embed"):
                call()
        with pytest.raises(InputError, match="not a reranker"):
            model.rank("a", ["b"])


def test_no_context_beyond_the_table_of_positions(folder: Path) -> None:
    with pytest.raises(InputError, match="exceeds the model's 128 positions"):
        trinity.load(folder / "bert_cls" / "model.gguf", threads=1, context_length=129)


@pytest.mark.parametrize("name", ["bert_cls", "xlm_roberta_rerank"])
def test_what_cannot_be_embedded_is_refused(folder: Path, name: str) -> None:
    with trinity.load(folder / name / "model.gguf", threads=1) as model:
        assert model.embed([]).shape == (0, model.embedding_size)
        with pytest.raises(ContextLengthError, match=r"text 1 has .* but the context holds 128"):
            model.embed(["a", "long " * 200], truncate=False)
        with pytest.raises(InputError, match="text 1 is empty"):
            model.embed(["a", []])
        with pytest.raises(InputError, match="one text; give a list"):
            model.embed("abc")


def test_what_cannot_be_ranked_is_refused(folder: Path) -> None:
    with trinity.load(folder / "xlm_roberta_rerank" / "model.gguf", threads=1) as model:
        assert model.ranks
        assert model.rank("a", []).shape == (0,)
        with pytest.raises(ContextLengthError, match="the query with a text has"):
            model.rank("a", ["b", "long " * 200], truncate=False)
        with pytest.raises(InputError, match="the query is empty"):
            model.rank("", ["b"])
        with pytest.raises(InputError, match="text 0 is empty"):
            model.rank("a", [""])


def test_a_model_that_writes_gives_vectors_as_before(folder: Path) -> None:
    with trinity.load(folder / "qwen3_embedding" / "model.gguf", threads=1) as model:
        assert not model.encodes
        assert len(model.generate("abc", max_tokens=2).token_ids) <= 2
        assert model.embed(["abc"]).shape == (1, model.embedding_size)
