"""OpenAI's embeddings in every encoding, and models that have none."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import pytest
from openai.types import CreateEmbeddingResponse
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.server.asgi import Asked, strict
from tests.server.conftest import MakeApp, is_idle, wait_for
from trinity.model import Model
from trinity.server.endpoints.embeddings import Embedding, Embeddings, EmbeddingUsage
from trinity.server.endpoints.vectors import LIST, MOST_NUMBERS, MOST_TEXTS, with_list
from trinity.server.schemas import encode

PATH = "/v1/embeddings"
TEXTS = ["Prince Andrew", "Pierre", "a longer text of the same book"]


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    if body.get("encoding_format") != "base64":  # which the client decodes before it looks
        CreateEmbeddingResponse.model_validate(strict(response.text))
    return strict(response.text)


def rows(answer: Any) -> Any:
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return np.array([one["embedding"] for one in answer["data"]], np.float32)


def test_vectors_are_the_models(client: TestClient, model: Model) -> None:
    answer = post(client, input=TEXTS)
    assert np.array_equal(rows(answer), model.embed(TEXTS))
    count = sum(len(model.tokenizer.encode(text, add_eos=True)) for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert np.array_equal(rows(post(client, input=TEXTS[0])), model.embed(TEXTS[:1]))
    ids = [model.tokenizer.encode(text, add_eos=True) for text in TEXTS]
    assert np.array_equal(rows(post(client, input=ids)), model.embed(TEXTS))
    assert np.array_equal(rows(post(client, input=ids[1])), model.embed(TEXTS[1:2]))


def test_a_priority_changes_no_vector(client: TestClient, model: Model) -> None:
    assert np.array_equal(rows(post(client, input=TEXTS, priority=1000)), model.embed(TEXTS))
    assert np.array_equal(rows(post(client, input=TEXTS, priority=2**40)), model.embed(TEXTS))


@pytest.mark.parametrize("name", ["normalize", "use_activation"])
def test_vectors_need_not_be_normalized(client: TestClient, model: Model, name: str) -> None:
    raw = model.embed(TEXTS, normalize=False)
    assert np.array_equal(rows(post(client, input=TEXTS, **{name: False})), raw)
    cut = rows(post(client, input=TEXTS, dimensions=8, **{name: False}))
    assert np.array_equal(cut, raw[:, :8])
    assert np.array_equal(rows(post(client, input=TEXTS, **{name: True})), model.embed(TEXTS))


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [("embed_dtype", "float16", "float32"), ("endianness", "big", "native")],
)
def test_base64_is_float32_in_little_endian_order(
    client: TestClient, name: str, wrong: str, right: str
) -> None:
    body = {"input": "a", "encoding_format": "base64"}
    response = client.post(PATH, json={**body, name: wrong})
    assert (response.status_code, response.json()["error"]["param"]) == (400, name)
    assert client.post(PATH, json={**body, name: right}).status_code == 200
    assert client.post(PATH, json={"input": "a", name: wrong}).status_code == 200


@pytest.mark.parametrize("path", [PATH, "/embeddings"])
def test_images_are_refused(client: TestClient, path: str) -> None:
    body = {"input": [{"prompt_string": "<__media__>", "multimodal_data": ["iVBORw0KGgo="]}]}
    response = client.post(path, json=body)
    assert response.status_code == 400
    assert "cannot be embedded" in response.text
    plain = client.post(path, json={"input": [{"prompt_string": "a", "multimodal_data": []}]})
    assert plain.status_code == 200


def test_a_text_keeps_the_tokens_around_it(client: TestClient) -> None:
    response = client.post(PATH, json={"input": "a", "add_special_tokens": False})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "add_special_tokens")


def test_many_texts_come_in_order(client: TestClient, model: Model) -> None:
    texts = [f"text {number}" for number in range(40)]
    assert np.array_equal(rows(post(client, input=texts)), model.embed(texts))


@pytest.mark.full
def test_more_texts_than_openai_allows(client: TestClient, model: Model) -> None:
    """Ollama has no limit; here the limit is the size of the answer."""
    texts = [str(number % 7) for number in range(MOST_TEXTS + 2)]
    found = client.post("/api/embed", json={"model": "demo", "input": texts})
    assert found.status_code == 200, found.text
    expected = model.embed(texts[:7])[[number % 7 for number in range(len(texts))]]
    assert np.allclose(found.json()["embeddings"], expected, atol=1e-6)


def test_base64_is_the_same_numbers(client: TestClient, model: Model) -> None:
    answer = post(client, input=TEXTS[0], encoding_format="base64")
    found = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    assert np.array_equal(found, model.embed(TEXTS[:1])[0])


def test_fewer_dimensions_have_length_one_again(client: TestClient, model: Model) -> None:
    found = rows(post(client, input=TEXTS, dimensions=16))
    expected = model.embed(TEXTS)[:, :16]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(found - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": {}}, "input"),
        ({"input": {"prompt_string": "a", "content": []}}, "input"),
        ({"input": {"content": "a"}}, "input.content"),
        ({"input": [{"content": [{"type": "image_url"}]}]}, "input[0].content[0].type"),
        ({"input": [10**6]}, "input"),
        ({"input": [-1]}, "input[0]"),
        ({"input": ["a"] * (MOST_NUMBERS // 256 + 1)}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 257}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({}, "input"),
    ],
)
def test_what_has_no_vector_is_refused(
    client: TestClient, body: dict[str, Any], param: str
) -> None:
    response = client.post(PATH, json=body)
    assert response.status_code == 400, response.text
    assert strict(response.text)["error"]["param"] == param


def test_too_long_a_text_is_cut(
    client: TestClient, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """The context holds 512 tokens; the BOS stays."""
    answer = post(client, input=["a", "war " * 2000])
    ids = model.tokenizer.encode_whole("war " * 2000)[:512]
    assert np.array_equal(rows(answer)[1:], model.embed([ids]))
    assert answer["usage"]["prompt_tokens"] == 512 + len(model.tokenizer.encode_whole("a"))
    assert "texts were cut to 512 tokens (1 of 2 texts, the first is text 1)" in caplog.text


def test_texts_of_special_tokens_are_these_tokens(client: TestClient, model: Model) -> None:
    """Special tokens in the text are parsed, as in llama.cpp and vLLM."""
    text = f"war{model.tokenizer.token_text(model.tokenizer.bos_id or 0)} and peace"
    answer = post(client, input=text)
    assert np.array_equal(rows(answer), model.embed([text]))
    count = len(model.tokenizer.encode_whole(text))
    assert answer["usage"]["prompt_tokens"] == count
    assert count < len(model.tokenizer.encode(text))


def test_who_leaves_ends_the_work(app: Starlette, model: Model) -> None:
    async def leave() -> None:
        texts = [f"{'war and peace ' * 30}{number}" for number in range(400)]
        asked = Asked(app, PATH, {"input": texts})
        while is_idle(model):
            await asyncio.sleep(0.001)
        asked.leave.set()
        await asked.done
        assert asked.sent == []

    asyncio.run(leave())
    wait_for(lambda: is_idle(model))


def test_inputs_in_llama_cpps_forms(client: TestClient, model: Model) -> None:
    """One vector for a list of ids and texts, several for lists and objects."""
    first = model.tokenize("war and", parse_special=True)
    rest = model.tokenize(" peace", add_bos=False, parse_special=True)
    parts = [{"type": "text", "text": "war "}, {"type": "text", "text": "and peace"}]
    mixed = ["war and", 300, " peace"]
    one = model.embed([[*first, 300, *rest]])
    whole = model.embed(["war and peace"])
    assert np.array_equal(rows(post(client, input=mixed)), one)
    assert np.array_equal(rows(post(client, input={"content": parts})), whole)
    several = [mixed, {"prompt_string": "war and peace"}, {"content": parts}, "war and peace"]
    found = rows(post(client, input=several))
    assert np.array_equal(found, np.concatenate([one, whole, whole, whole]))


@pytest.mark.parametrize("pooling", ["cls", "last", None])
def test_the_server_may_pool_otherwise(make: MakeApp, model: Model, pooling: Any) -> None:
    client = TestClient(make(pooling=pooling), base_url="http://localhost")
    expected = model.embed(TEXTS, pooling=pooling)
    assert np.array_equal(rows(post(client, input=TEXTS)), expected)


def test_a_list_is_written_into_its_document() -> None:
    usage = EmbeddingUsage(3, 3)
    for count in (0, 1, 3):
        parts = [Embedding([0.5] * number, number) for number in range(count)]
        made = with_list(Embeddings(LIST, 'a":[],"\0', usage), iter(parts))
        assert made.body == encode(Embeddings(parts, 'a":[],"\0', usage))
        assert with_list(LIST, parts).body == encode(parts)
