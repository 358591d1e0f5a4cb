"""`trinity embed` and `trinity rank`: output and errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.cli.conftest import Run
from tests.formats.huggingface.rank_models import CHATS, FILE, PAIRS, write_file
from tests.tiny_models import write_tiny_model

TEXTS = ["Hello, world!", "a café in the Straße"]


@pytest.fixture
def embedder(shared_data: Path) -> str:
    return str(shared_data / "encoders/bert_cls/model.gguf")


@pytest.fixture
def reranker(shared_data: Path) -> str:
    return str(shared_data / "encoders/xlm_roberta_rerank/model.gguf")


def test_vectors_of_arguments_and_of_lines(run: Run, embedder: str, tmp_path: Path) -> None:
    with trinity.load(embedder, threads=1) as model:
        expected = model.embed(TEXTS)
    said = run("embed", "-m", embedder, *TEXTS)
    assert said.exit_code == 0, said.stderr
    found = np.array([line.split() for line in said.stdout.splitlines()], np.float64)
    assert np.abs(found - expected).max() < 1e-6
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n", "utf-8")
    assert run("embed", "-m", embedder, "-f", str(tmp_path / "texts")).stdout == said.stdout
    assert run("embed", "-m", embedder, input="\n".join(TEXTS)).stdout == said.stdout


def test_json_of_vectors(run: Run, embedder: str) -> None:
    with trinity.load(embedder, threads=1) as model:
        expected = model.embed(TEXTS, "mean", False)
        counts = [len(model.tokenizer.encode(text, add_eos=True)) for text in TEXTS]
    options = ("--pooling", "mean", "--no-normalize", "--json")
    found = json.loads(run("embed", "-m", embedder, *TEXTS, *options).stdout)
    assert [one["tokens"] for one in found["embeddings"]] == counts
    assert found["dimensions"] == expected.shape[1]
    vectors = np.array([one["embedding"] for one in found["embeddings"]])
    assert np.abs(vectors - expected).max() < 1e-5


def test_ranks_best_first(run: Run, reranker: str) -> None:
    texts = ["fox", "The license applies to any program or work.", "dogs"]
    with trinity.load(reranker, threads=1) as model:
        scores = model.rank("what is a license", texts)
    order = (-scores).argsort()
    said = run("rank", "-m", reranker, "what is a license", *texts, "--json")
    found = json.loads(said.stdout)["results"]
    assert [one["index"] for one in found] == order.tolist()
    assert np.abs(np.array([one["score"] for one in found]) - scores[order]).max() < 1e-5
    lines = run("rank", "-m", reranker, "what is a license", *texts, "--top", "2").stdout
    assert [line[11:] for line in lines.splitlines()] == [texts[i] for i in order[:2]]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("embed", "a", "--pooling", "max"), 2, "must be mean or cls or last"),
        (("embed", "a", "-f", "b"), 2, "given twice"),
        (("embed", "long " * 600, "--no-truncate"), 1, "the context holds"),
        (("embed", "a", "--prompt-name", "query"), 1, "has no prompt 'query'; it has none"),
        (("rank", "a", "b"), 1, "not a reranker"),
        (("generate", "a"), 1, "use embed()"),
    ],
)
def test_what_is_refused(
    run: Run, embedder: str, arguments: tuple[str, ...], status: int, message: str
) -> None:
    result = run(arguments[0], "-m", embedder, *arguments[1:])
    assert result.exit_code == status
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["generate", "chat", "perplexity"])
@pytest.mark.parametrize(
    ("kind", "use"),
    [("bert_mean", "embed"), ("nomic_bert", "embed"), ("gemma_embedding", "embed"),
     ("xlm_roberta_rerank", "rank")],
)  # fmt: skip
def test_no_text_comes_from_encoders(
    run: Run, shared_data: Path, command: str, kind: str, use: str, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("The quick brown fox jumps. " * 40)
    more = {"generate": ["abc"], "perplexity": ["-f", str(tmp_path / "text"), "-c", "64"]}
    model = str(shared_data / "encoders" / kind / "model.gguf")
    said = run(command, "--model", model, *more.get(command, []))
    assert said.exit_code == 1
    assert "an encoder, which cannot generate text: use" in said.stderr
    assert f"trinity {use}" in said.stderr


def test_a_reranker_that_writes_ranks(run: Run, tmp_path: Path) -> None:
    model = str(write_file(tmp_path / "model.gguf"))
    expected = json.loads((Path(__file__).parents[1] / "data/ranks.json").read_text())[FILE]
    (query, text), score = PAIRS[0], expected["scores"][0]
    (found,) = json.loads(run("rank", "-m", model, query, text, "--json").stdout)["results"]
    assert abs(found["score"] - score) < 1e-3  # keys and values are float16 here
    assert "ranks" in run("inspect", model).stdout


@pytest.mark.parametrize(("pooling", "use"), [(0, None), (3, "embed"), (4, "rank")])
def test_what_was_not_trained_to_write_says_so(
    run: Run, pooling: int, use: str | None, tmp_path: Path
) -> None:
    """The model generates text all the same, as in llama.cpp."""
    path, template = tmp_path / "m.gguf", tmp_path / "t.jinja"
    template.write_text(CHATS)
    write_tiny_model(path, num_layers=1, metadata={"llama.pooling_type": pooling})
    for command, given in (("generate", ["abc"]), ("chat", ["--template", str(template)])):
        said = run(command, "-m", str(path), *given, "-n", "2", input="abc\n")
        assert said.exit_code == 0, said.stderr
        note = " ".join(said.stderr.split())
        assert ("was trained to" in note) == (use is not None)
        assert use is None or f"use `trinity {use}`" in note
