"""Stored responses: read, continued, deleted, and dropped when space runs out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from starlette.testclient import TestClient

from tests.server.named_events import named_events
from trinity.server.errors import ApiError
from trinity.server.kept_responses import KeptResponses, kept_response

PATH = "/v1/responses"
GREEDY: Any = {"temperature": 0, "max_output_tokens": 8}


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={**GREEDY, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_official_client_reads_and_deletes_a_response(url: str) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        check_kept(client)


def check_kept(client: OpenAI) -> None:
    made = client.responses.create(model="demo", input="Who was Pierre?", **GREEDY)
    assert client.responses.retrieve(made.id) == made
    (item,) = client.responses.input_items.list(made.id).data
    assert item.content[0].text == "Who was Pierre?"  # type: ignore[union-attr]
    client.responses.delete(made.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(made.id)


def test_tokens_of_an_input_are_counted(url: str, client: TestClient) -> None:
    body: Any = {"input": "Who was Pierre?", "instructions": "Be short."}
    with OpenAI(base_url=f"{url}/v1", api_key="none") as official:
        counted = official.responses.input_tokens.count(model="demo", **body)
    assert counted.input_tokens == post(client, **body)["usage"]["input_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_goes_on(client: TestClient, stream: bool) -> None:
    asked: Any = {"input": "Who was Pierre?", "instructions": "Be short.", **GREEDY}
    if stream:
        events = named_events(client.post(PATH, json={**asked, "stream": True}).content)
        first = events[-1]["response"]
    else:
        first = post(client, **asked)
    again = post(client, input="And Andrew?", previous_response_id=first["id"])
    assert again["previous_response_id"] == first["id"]
    whole = post(
        client, store=False,
        input=[{"role": "user", "content": "Who was Pierre?"}, *first["output"],
               {"role": "user", "content": "And Andrew?"}],
    )  # fmt: skip
    assert again["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert text_of(again) == text_of(whole)
    third = post(client, input="Why?", previous_response_id=again["id"])
    assert third["usage"]["input_tokens"] > again["usage"]["input_tokens"]


def text_of(response: Any) -> str:
    return str(response["output"][0]["content"][0]["text"])


@pytest.mark.parametrize("kind", [{"type": "item_reference"}, {"type": None}, {}])
def test_items_are_referred_to(client: TestClient, kind: dict[str, Any]) -> None:
    first = post(client, input="Who was Pierre?")
    ask, more = {"role": "user", "content": "Who was Pierre?"}, {"role": "user", "content": "Why?"}
    named = [ask, {**kind, "id": first["output"][0]["id"]}, more]
    spelled = [ask, first["output"][0], more]
    assert text_of(post(client, input=named)) == text_of(post(client, input=spelled))


def test_nothing_is_kept_where_that_is_asked(client: TestClient) -> None:
    made = post(client, input="Who was Pierre?", store=False)
    assert made["store"] is False
    assert client.get(f"{PATH}/{made['id']}").status_code == 404
    refused = client.post(PATH, json={"input": "a", "previous_response_id": made["id"]})
    assert refused.json()["error"]["code"] == "previous_response_not_found"


def test_input_items_come_in_pages(client: TestClient) -> None:
    texts = ["a", "b", "c"]
    made = post(client, input=[{"role": "user", "content": text} for text in texts])
    path = f"{PATH}/{made['id']}/input_items"

    def page(**query: Any) -> tuple[list[str], Any]:
        found = client.get(path, params=query).json()
        return [one["content"][0]["text"] for one in found["data"]], found

    assert page()[0] == ["c", "b", "a"]
    assert page(order="asc")[0] == texts
    first, found = page(order="asc", limit=2)
    assert (first, found["has_more"]) == (["a", "b"], True)
    rest, found = page(order="asc", after=found["last_id"])
    assert (rest, found["has_more"]) == (["c"], False)
    assert client.get(path, params={"after": "nope"}).status_code == 400
    assert client.get(f"{PATH}/{made['id']}", params={"stream": "true"}).status_code == 400


def body_of(text: str) -> bytes:
    return msgspec.json.encode({"output": [{"id": f"o_{text}", "text": text}]})


def test_the_oldest_goes_where_there_are_too_many() -> None:
    kept = KeptResponses(most=2)
    for name in "abc":
        kept.keep(name, kept_response(body_of(name), [{"text": name}], None))
        kept.find("a") if name == "b" else None  # a is used again, so b is the oldest
    assert kept.find("a").conversation[-1]["text"] == "a"
    with pytest.raises(ApiError) as error:
        kept.find("b")
    assert error.value.status == 404


def test_bytes_are_limited_with_the_conversation_before() -> None:
    size = len(body_of("x" * 100)) + 2
    kept = KeptResponses(most_bytes=3 * size)
    kept.keep("a", kept_response(body_of("x" * 100), [], None))
    kept.keep("b", kept_response(body_of("x" * 100), [], kept.find("a")))
    assert kept.find("b").size == 2 * size
    # As large as all that is allowed.
    kept.keep("c", kept_response(body_of("x" * 100), [], kept.find("b")))
    with pytest.raises(ApiError):
        kept.find("b")
    assert len(kept.find("c").conversation) == 3
    # Too large: it is not kept.
    kept.keep("d", kept_response(body_of("x" * 100), [], kept.find("c")))
    kept.drop("c")
    for name in "cd":
        with pytest.raises(ApiError):
            kept.find(name)
    kept.keep("e", kept_response(body_of("x" * 100), [], None))
    assert kept.find("e")


def test_a_response_in_the_background_is_polled(url: str) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        ask: Any = {"model": "demo", "input": "Who was Pierre?", **GREEDY}
        made = client.responses.create(background=True, **ask)
        assert made.background
        while made.status in ("queued", "in_progress"):
            made = client.responses.retrieve(made.id)
        whole = client.responses.create(**ask)
        assert made.output_text == whole.output_text
        assert client.responses.cancel(made.id) == made
        with pytest.raises(BadRequestError, match="background"):
            client.responses.cancel(whole.id)
        with pytest.raises(NotFoundError):
            client.responses.cancel("resp_0")


def test_a_response_in_the_background_is_cancelled(url: str) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        ask: Any = {"model": "demo", "input": "Who was Pierre?", "max_output_tokens": 400}
        made = client.responses.create(background=True, **ask)
        with pytest.raises(BadRequestError, match="in progress"):
            client.responses.create(previous_response_id=made.id, **ask)
        ended = client.responses.cancel(made.id)
        assert ended.status == "cancelled"
        assert client.responses.retrieve(made.id) == ended
