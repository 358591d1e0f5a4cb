"""MiniLM and EmbeddingGemma give the vectors of sentence-transformers, as shipped and converted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trinity
from tests.conftest import GetModel
from tests.llama_cpp import LlamaCpp
from tests.real.embedding_texts import COUNT, texts
from trinity.tools.convert import convert

GOLDEN = Path(__file__).parents[1] / "data" / "real"
LIMITS = {"minilm": 256, "embeddinggemma": 2048}
Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[LlamaCpp]:
    found = LlamaCpp()
    yield found
    found.close()


def cosines(found: Vectors, expected: Vectors) -> Vectors:
    a, b = found.astype(np.float64), expected.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(axis=1) / lengths, np.float32)


@pytest.mark.parametrize("name", ["minilm", pytest.param("embeddinggemma", marks=pytest.mark.full)])
def test_vectors_are_those_of_sentence_transformers(name: str, real_model: GetModel) -> None:
    """Of 200 texts of 0 to 600 tokens; MiniLM's are cut to 256."""
    golden = np.load(GOLDEN / f"{name}_vectors.npz")
    with trinity.load(real_model(name)) as model, warnings.catch_warnings():
        assert model.text_length == LIMITS[name]
        warnings.simplefilter("ignore", RuntimeWarning)
        found = model.embed(texts())
        prompts = [prompt for prompt in ("query", "document") if prompt in golden]
        assert prompts == [
            one for one in ("query", "document") if one in model.embedder.rules.prompts
        ]
        prompted = {prompt: model.embed(texts()[::10], prompt_name=prompt) for prompt in prompts}
    assert found.shape == golden["vectors"].shape
    assert len(found) == COUNT
    assert cosines(found, golden["vectors"]).min() >= 0.99999
    for prompt, vectors in prompted.items():
        assert cosines(vectors, golden[prompt]).min() >= 0.99999


@pytest.mark.parametrize("type_name", ["f16", "q8_0"])
@pytest.mark.parametrize("name", LIMITS)
def test_converted_files_are_right_in_llama_cpp_and_here(
    name: str, type_name: str, real_model: GetModel, llama_cpp: LlamaCpp, tmp_path: Path
) -> None:
    path, chosen = tmp_path / "model.gguf", slice(None, None, 10)
    convert(real_model(name), path, type_name)
    expected = np.load(GOLDEN / f"{name}_vectors.npz")["vectors"][chosen]
    with trinity.load(path) as model:
        read = model.embedder.read_texts(texts()[chosen])
        found = model.embedder.embed_texts(read)
        assert model.text_length == LIMITS[name]
    theirs = np.array([llama_cpp(path, ids, embed=True) for ids in read.rows])
    assert cosines(found, expected).min() >= 0.999
    assert cosines(theirs, expected).min() >= 0.999
