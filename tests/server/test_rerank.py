"""Reranking over HTTP: sorted scores under every path, and errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.formats.huggingface.rank_models import PAIRS, write_file
from tests.server.asgi import strict
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.endpoints.rerank import PATHS
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

QUERY = "what is a license"
TEXTS = ["fox", "The license applies to any program or work.", "a notice", "dogs"] * 5


@pytest.fixture(scope="module")
def reranker(shared_data: Path) -> Iterator[Model]:
    with trinity.load(shared_data / "encoders/xlm_roberta_rerank/model.gguf", threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def ranking(reranker: Model) -> Iterator[TestClient]:
    served = Served("reranker", "model.gguf", lambda: reranker, model=reranker)
    with TestClient(
        make_app(Models([served]), ServerOptions()), base_url="http://localhost"
    ) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_texts_come_in_the_order_of_their_scores(
    ranking: TestClient, reranker: Model, path: str
) -> None:
    answer = strict(ranking.post(path, json={"query": QUERY, "documents": TEXTS}).text)
    scores = reranker.rank(QUERY, TEXTS)
    found = [(one["index"], one["relevance_score"]) for one in answer["results"]]
    assert sorted(index for index, _ in found) == list(range(len(TEXTS)))
    assert found == sorted(found, key=lambda pair: -pair[1])
    assert all(abs(scores[index] - score) < 1e-5 for index, score in found)
    assert "document" not in answer["results"][0]
    count = sum(map(len, reranker.embedder.pairs(QUERY, TEXTS).rows))
    # The AI SDK's provider for Together AI refuses an answer without completion_tokens.
    assert answer["usage"] == {
        "prompt_tokens": count, "total_tokens": count, "completion_tokens": 0
    }  # fmt: skip


def test_the_best_with_their_texts(ranking: TestClient, reranker: Model) -> None:
    body = {"query": QUERY, "documents": [{"text": TEXTS[0]}, TEXTS[1]], "top_n": 1}
    answer = strict(ranking.post(PATHS[0], json={**body, "return_documents": True}).text)
    best = int(reranker.rank(QUERY, TEXTS[:2]).argmax())
    (result,) = answer["results"]
    assert (result["index"], result["document"]) == (best, {"text": TEXTS[best]})


def test_texts_are_answered_in_teis_form(ranking: TestClient, reranker: Model) -> None:
    """As llama-server does: a list, with the model's own scores unless they are not to be raw."""
    body = {"query": QUERY, "texts": TEXTS[:4], "truncate": True}
    own = reranker.rank(QUERY, TEXTS[:4]).tolist()
    order = sorted(range(4), key=lambda i: -own[i])
    for given, expected in (
        ({}, own), ({"raw_scores": True}, own),
        ({"raw_scores": False}, probabilities(reranker, QUERY, TEXTS[:4])),
    ):  # fmt: skip
        found = strict(ranking.post("/rerank", json={**body, **given}).text)
        assert [one["index"] for one in found] == order
        assert [one["score"] for one in found] == pytest.approx([expected[i] for i in order])
        assert all(one.keys() == {"index", "score"} for one in found)
    (best,) = strict(ranking.post("/rerank", json={**body, "return_text": True, "top_n": 1}).text)
    assert (best["index"], best["text"]) == (order[0], TEXTS[order[0]])


@pytest.mark.parametrize(
    ("given", "count"), [({"truncation": True, "top_k": None}, 4), ({"top_k": 2}, 2)]
)
def test_voyages_form(
    ranking: TestClient, reranker: Model, given: dict[str, Any], count: int
) -> None:
    """Its clients for Python always send truncation, those for JavaScript only what is set."""
    body = {"query": QUERY, "documents": TEXTS[:4], "return_documents": True, **given}
    response = ranking.post("/v1/rerank", json=body)
    answer = strict(response.text)
    expected = probabilities(reranker, QUERY, TEXTS[:4])
    order = sorted(range(4), key=lambda i: -expected[i])[:count]
    assert [one["index"] for one in answer["data"]] == order
    assert [one["document"] for one in answer["data"]] == [TEXTS[i] for i in order]
    found = [one["relevance_score"] for one in answer["data"]]
    assert found == pytest.approx([expected[i] for i in order], abs=1e-5)
    assert answer["object"] == "list"
    assert answer["usage"]["total_tokens"] > 0
    assert "X-Trinity-Ignored" not in response.headers


def test_texts_that_are_too_long_are_refused_without_truncation(ranking: TestClient) -> None:
    body = {"query": QUERY, "documents": ["license " * 5000]}
    assert ranking.post("/v1/rerank", json={**body, "truncation": True}).status_code == 200
    refused = ranking.post("/v1/rerank", json={**body, "truncation": False})
    assert refused.status_code == 400
    assert "tokens" in strict(refused.text)["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"query": QUERY},
        {"documents": TEXTS},
        {"query": QUERY, "documents": []},
        {"query": "", "documents": ["a"]},
        {"query": QUERY, "documents": [""]},
        {"query": QUERY, "documents": ["a"], "texts": ["a"]},
        {"query": QUERY, "documents": ["a"], "top_n": 0},
        {"query": QUERY, "documents": ["a"], "top_k": 0},
    ],
)
def test_what_cannot_be_ranked_is_refused(ranking: TestClient, body: dict[str, Any]) -> None:
    assert ranking.post(PATHS[0], json=body).status_code == 400


def probabilities(reranker: Model, query: str, texts: list[str]) -> list[float]:
    return [1 / (1 + math.exp(-score)) for score in reranker.rank(query, texts).tolist()]


def test_coheres_form(ranking: TestClient, reranker: Model) -> None:
    body = {"model": "reranker", "query": QUERY, "documents": TEXTS[:4], "top_n": 3}
    answer = strict(ranking.post("/v2/rerank", json=body).text)
    expected = probabilities(reranker, QUERY, TEXTS[:4])
    assert [one["index"] for one in answer["results"]] == sorted(
        range(4), key=lambda i: -expected[i]
    )[:3]
    for one in answer["results"]:
        assert one["relevance_score"] == pytest.approx(expected[one["index"]], abs=1e-5)
    assert answer["meta"] == {"api_version": {"version": "2"}}


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_vllms_scores(
    ranking: TestClient, reranker: Model, path: str, names: tuple[str, str]
) -> None:
    first, second = names
    answer = strict(ranking.post(path, json={first: QUERY, second: TEXTS[:4]}).text)
    found = [one["score"] for one in answer["data"]]
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3]
    assert found == pytest.approx(probabilities(reranker, QUERY, TEXTS[:4]), abs=1e-5)
    two = {first: [QUERY, "dogs"], second: TEXTS[:2], "use_activation": False}
    answer = strict(ranking.post(path, json=two).text)
    expected = [
        float(reranker.rank(*pair)[0]) for pair in ((QUERY, TEXTS[:1]), ("dogs", TEXTS[1:2]))
    ]
    assert [one["score"] for one in answer["data"]] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "body",
    [{"text_1": "a"}, {"text_1": ["a", "b"], "text_2": ["c"]}, {"text_1": [], "text_2": "a"}],
)
def test_pairs_that_do_not_match_are_refused(ranking: TestClient, body: dict[str, Any]) -> None:
    response = ranking.post("/score", json=body)
    assert response.status_code == 400
    assert "text_1" in strict(response.text)["error"]["message"]


def test_a_model_without_a_classifier_is_no_reranker(client: TestClient) -> None:
    response = client.post(PATHS[0], json={"query": QUERY, "documents": ["a"]})
    assert response.status_code == 400
    assert "not a reranker" in strict(response.text)["error"]["message"]


def test_a_reranker_writes_no_text(ranking: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "a"}]}
    assert ranking.post("/v1/chat/completions", json=body).status_code == 400
    response = ranking.post("/v1/completions", json={"prompt": "a"})
    assert response.status_code == 400
    assert "is an encoder" in strict(response.text)["error"]["message"]


def test_a_reranker_that_writes(tmp_path: Path) -> None:
    query, texts = PAIRS[0][0], [text for _, text in PAIRS]
    with trinity.load(write_file(tmp_path / "model.gguf"), threads=1) as model:
        scores = model.rank(query, texts)
        served = Served("reranker", "model.gguf", lambda: model, model=model)
        app = make_app(Models([served]), ServerOptions())
        with TestClient(app, base_url="http://localhost") as client:
            answer = client.post(PATHS[0], json={"query": query, "documents": texts})
            shown = client.post("/api/show", json={"model": "reranker"})
    results = strict(answer.text)["results"]
    assert [one["index"] for one in results] == (-scores).argsort().tolist()
    assert all(abs(scores[one["index"]] - one["relevance_score"]) < 1e-5 for one in results)
    assert strict(shown.text)["capabilities"] == ["embedding"]


def test_a_long_text_is_cut(ranking: TestClient, reranker: Model) -> None:
    """As transformers cuts pairs: only tokens of the longer text are removed."""
    query = reranker.tokenizer.encode(QUERY, add_bos=False)
    text = reranker.tokenizer.encode("long " * 300, add_bos=False)
    (ids,) = reranker.embedder.pairs(QUERY, ["long " * 300]).rows
    plain = [*reranker.tokenizer.encode("a", add_bos=False)]
    plain += reranker.tokenizer.encode("b", add_bos=False)
    special = len(reranker.embedder.pairs("a", ["b"]).rows[0]) - len(plain)
    room = reranker.text_length - len(query) - special
    assert len(ids) == reranker.text_length
    assert ids[1 : 1 + len(query)] == query
    assert ids[-1 - room : -1] == text[:room]
    answer = ranking.post(PATHS[0], json={"query": QUERY, "documents": ["long " * 300]}).json()
    assert answer["usage"]["prompt_tokens"] == reranker.text_length
    with pytest.warns(RuntimeWarning, match="texts were cut"):
        expected = reranker.rank(QUERY, ["long " * 300])
    assert answer["results"][0]["relevance_score"] == pytest.approx(float(expected[0]))
