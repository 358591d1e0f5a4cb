"""Cohere's embeddings: every form of the vectors, prompts of the model, and what is refused."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from trinity.model import Model
from trinity.server.endpoints.cohere_embeddings import PROMPTS

TEXTS = ["Prince Andrew", "Pierre", "a longer text of the same book"]


def post(client: TestClient, **body: Any) -> Any:
    response = client.post("/v2/embed", json={"model": "demo", **body})
    assert response.status_code == 200, response.text
    return strict(response.text)


def test_vectors_in_each_form(client: TestClient, model: Model) -> None:
    forms = ["float", "base64", "binary", "ubinary"]
    answer = post(client, texts=TEXTS, input_type="search_document", embedding_types=forms)
    found, rows = answer["embeddings"], model.embed(TEXTS)
    assert found.keys() == set(forms)
    assert np.array_equal(np.array(found["float"], np.float32), rows)
    read = [np.frombuffer(base64.b64decode(text), "<f4") for text in found["base64"]]
    assert np.array_equal(read, rows)
    packed = np.packbits(rows > 0, axis=1)
    assert np.array_equal(found["ubinary"], packed)
    assert np.array_equal(found["binary"], packed.astype(int) - 128)
    assert answer["texts"] == TEXTS
    assert answer["response_type"] == "embeddings_by_type"
    count = sum(len(model.tokenizer.encode(text, add_eos=True)) for text in TEXTS)
    assert answer["meta"]["billed_units"] == {"input_tokens": count}


def test_floats_are_the_default(client: TestClient, model: Model) -> None:
    inputs = [{"content": [{"type": "text", "text": text}]} for text in TEXTS]
    found = post(client, inputs=inputs, output_dimension=8)["embeddings"]
    assert found.keys() == {"float"}
    rows = model.embed(TEXTS)[:, :8]
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(found["float"], expected, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(set(PROMPTS) - {"image"}))
def test_the_kind_of_input_selects_a_prompt(
    client: TestClient, model: Model, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    plain = post(client, texts=TEXTS, input_type=kind)["embeddings"]["float"]
    name = PROMPTS[kind][-1]
    changed = replace(model.embedder.rules, prompts={name: "a prompt: ", "other": "b"})
    monkeypatch.setattr(model.embedder, "rules", changed)
    prompted = post(client, texts=TEXTS, input_type=kind)["embeddings"]["float"]
    assert prompted != plain
    assert np.allclose(prompted, model.embed(TEXTS, prompt="a prompt: "), rtol=0, atol=1e-6)
    assert post(client, texts=TEXTS)["embeddings"]["float"] == plain


def test_texts_that_are_too_long_are_cut_or_refused(client: TestClient) -> None:
    texts = ["Prince Andrew " * 2000]
    assert post(client, texts=texts)["embeddings"]["float"]
    body = {"texts": texts, "truncate": "NONE"}
    assert client.post("/v2/embed", json=body).status_code == 400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": [""]}, "texts[0]"),
        ({"texts": ["a"], "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "texts"),
        ({"images": ["data:image/png;base64,AA"]}, "images"),
        ({"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": ["text"]}, "embedding_types[0]"),
        ({"texts": ["a"], "truncate": "START"}, "truncate"),
        ({"texts": ["a"], "max_tokens": 8}, "max_tokens"),
        ({"texts": ["a"], "output_dimension": 0}, "output_dimension"),
        ({"texts": ["a"], "output_dimension": 10**6}, "dimensions"),
        ({"texts": ["a"], "input_type": "other"}, "input_type"),
    ],
)
def test_what_would_give_other_vectors_is_refused(
    client: TestClient, body: dict[str, Any], param: str
) -> None:
    response = client.post("/v2/embed", json=body)
    assert response.status_code == 400
    assert strict(response.text)["error"]["param"] == param
