"""Classification over HTTP, in vLLM's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import trinity
from tests.formats.huggingface.rank_models import LABELS, write
from tests.server.asgi import strict
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.endpoints.vectors import MOST_TEXTS
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

TEXTS = ["The license applies to any work.", "a fox", "more"] * 8


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write("qwen3_labels", tmp_path_factory.mktemp("classifier") / "model")
    with trinity.load(path, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def client(classifier: Model) -> Iterator[TestClient]:
    served = Served("classifier", "model", lambda: classifier, model=classifier)
    app = make_app(Models([served]), ServerOptions())
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def post(client: TestClient, status: int = 200, path: str = "/classify", **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    return strict(response.text)


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
def test_texts_in_their_order(client: TestClient, classifier: Model, path: str) -> None:
    found = post(client, path=path, model="classifier", input=TEXTS)
    rows = np.array([one["probs"] for one in found["data"]])
    assert np.abs(rows - classifier.embedder.classify(TEXTS)).max() < 1e-5
    assert [one["index"] for one in found["data"]] == list(range(len(TEXTS)))
    assert [one["label"] for one in found["data"]] == [LABELS[i] for i in rows.argmax(1)]
    assert {one["num_classes"] for one in found["data"]} == {3}
    count = sum(map(len, classifier.embedder.read_classified(TEXTS).rows))
    assert found["usage"] == {
        "prompt_tokens": count, "total_tokens": count, "completion_tokens": 0,
        "prompt_tokens_details": None,
    }  # fmt: skip
    assert found["object"] == "list"
    assert found["id"].startswith("classify-")


def test_other_forms(client: TestClient, classifier: Model) -> None:
    (row,) = classifier.embedder.read_classified(TEXTS[:1]).rows
    first = post(client, input=TEXTS[0])["data"]
    assert post(client, input=row)["data"] == first
    assert post(client, input=[row, TEXTS[0]])["data"] == [first[0], {**first[0], "index": 1}]
    logits = np.array(post(client, input=TEXTS[0], use_activation=False)["data"][0]["probs"])
    assert np.abs(np.exp(logits) / np.exp(logits).sum() - first[0]["probs"]).max() < 1e-5
    assert logits.sum() != pytest.approx(1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "text 0 is empty"),
        ({"input": ["a", 1]}, "mixed"),
        ({"input": [[]]}, "input"),
        ({"input": [10**9]}, "token"),
        ({"input": ["a"] * (MOST_TEXTS + 1)}, "texts"),
    ],
)
def test_what_is_refused(client: TestClient, body: dict[str, Any], message: str) -> None:
    assert message in post(client, 400, **body)["error"]["message"]


def test_a_model_without_a_classifier(shared_data: Path) -> None:
    with trinity.load(shared_data / "encoders/bert_cls/model.gguf", threads=1) as model:
        served = Served("embedder", "model", lambda: model, model=model)
        app = make_app(Models([served]), ServerOptions())
        with TestClient(app, base_url="http://localhost") as client:
            found = post(client, 400, input="a")
    assert "not a classifier" in found["error"]["message"]
