"""The Responses API over a WebSocket; its events are checked by the types of OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai.types.responses import Response, ResponsesServerEvent
from openai.types.responses.responses_server_event import ResponseWsError
from pydantic import TypeAdapter
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from tests.server.asgi import strict
from tests.server.conftest import MakeApp, is_idle, wait_for
from trinity.model import Model
from trinity.server import app
from trinity.server.endpoints.responses import socket
from trinity.server.transport.connection import CROWDED

PATH = "/v1/responses"
KEY, OTHER_KEY = "the-secret-key", "the-other-key"
ASKED = {"type": "response.create", "input": "Who was Pierre?", "temperature": 0,
         "max_output_tokens": 12}  # fmt: skip
LONG = {**ASKED, "max_output_tokens": 400, "ignore_eos": True}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)
LAST = ("response.completed", "response.incomplete", "response.failed", "error")


@contextmanager
def connected(client: TestClient, **named: Any) -> Iterator[WebSocketTestSession]:
    with client.websocket_connect(f"ws://localhost{PATH}", **named) as session:
        yield session


def received(session: WebSocketTestSession) -> Any:
    event = strict(session.receive_text())
    EVENT.validate_python(event)
    return event


def asked(session: WebSocketTestSession, **body: Any) -> list[Any]:
    """The events of a request."""
    session.send_text(json.dumps({**ASKED, **body}))
    events = [received(session)]
    while events[-1]["type"] not in LAST:
        events.append(received(session))
    return events


def text_of(event: Any) -> str:
    return Response.model_validate(event["response"]).output_text


def test_events_are_those_of_a_stream(client: TestClient) -> None:
    body = {name: value for name, value in ASKED.items() if name != "type"}
    with client.stream("POST", PATH, json={**body, "stream": True}) as response:
        lines = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    streamed = [json.loads(line) for line in lines]
    with connected(client) as session:
        events = asked(session)
        again = asked(session)
    assert [one["type"] for one in events] == [one["type"] for one in streamed]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    assert text_of(events[-1]) == text_of(again[-1]) == text_of(streamed[-1]) != ""
    assert "stream_id" not in events[0]


def test_a_response_follows_one_that_is_not_stored(client: TestClient) -> None:
    with connected(client) as session:
        first = asked(session, store=False)[-1]["response"]
        more = {"input": "And Natasha?", "previous_response_id": first["id"]}
        follows = asked(session, store=False, **more)[-1]["response"]
        assert follows["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        assert client.get(f"{PATH}/{first['id']}").status_code == 404
        with connected(client) as other:
            error = asked(other, **more)[-1]
    assert error["status"] == 400
    assert error["error"]["code"] == "previous_response_not_found"
    assert error["error"]["param"] == "previous_response_id"


def test_a_stored_response_is_found_by_http(client: TestClient) -> None:
    with connected(client) as session:
        made = asked(session)[-1]["response"]
    assert client.get(f"{PATH}/{made['id']}").json()["id"] == made["id"]


def test_without_output_a_response_only_evaluates_the_prompt(client: TestClient) -> None:
    with connected(client) as session:
        events = asked(session, generate=False, input="A long prompt. " * 40)
        assert [one["type"] for one in events] == [
            "response.created", "response.in_progress", "response.completed",
        ]  # fmt: skip
        made = events[-1]["response"]
        assert (made["status"], made["output"]) == ("completed", [])
        assert made["usage"]["output_tokens"] == 0
        follows = asked(session, input="Go on.", previous_response_id=made["id"])[-1]["response"]
    assert follows["usage"]["input_tokens_details"]["cached_tokens"] > 0


def test_lanes_name_their_events(client: TestClient) -> None:
    lanes = ["a", "b", 'quote " and é']
    with connected(client) as session:
        for lane in lanes * 2:
            session.send_text(json.dumps({**ASKED, "stream_id": lane}))
        found = dict[str, list[Any]]()
        while sum(one["type"] in LAST for events in found.values() for one in events) < 6:
            event = received(session)
            found.setdefault(event["stream_id"], []).append(event)
    assert sorted(found) == sorted(lanes)
    for events in found.values():  # the second follows the first
        numbers = [one["sequence_number"] for one in events]
        assert numbers == [*range(len(events) // 2)] * 2
        assert text_of(events[-1]) == text_of(events[len(events) // 2 - 1])


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        ('{"type": "response.steer"}', 400, "'response.steer' is not supported"),
        ('{"input": "hi"}', 400, "'' is not supported; send 'response.create' or"),
        ("{", 400, "the body is not JSON"),
        ("", 400, "the body is empty"),
        ('{"type": "response.create", "temperature": "hot", "input": "hi"}', 400, "temperature"),
        ('{"type": "response.create", "input": "hi", "model": "other"}', 404, "other"),
        ('{"type": "response.create", "input": "hi", "conversation": "c"}', 400, "conversation"),
    ],
)
def test_errors_are_events(client: TestClient, sent: str, status: int, told: str) -> None:
    with connected(client) as session:
        session.send_text(sent)
        event = received(session)
        assert ResponseWsError.model_validate(event).status == status
        assert told in event["error"]["message"]
        assert asked(session)[-1]["type"] in LAST[:2]  # the connection goes on


@pytest.mark.parametrize("by_name", [True, False])
def test_a_response_can_be_cancelled(client: TestClient, model: Model, by_name: bool) -> None:
    with connected(client) as session:
        session.send_text('{"type": "response.cancel"}')  # nothing runs
        session.send_text(json.dumps(LONG))
        events = [received(session)]
        while events[-1]["type"] != "response.output_text.delta":
            events.append(received(session))
        named = {"response_id": events[0]["response"]["id"]} if by_name else {}
        session.send_text(json.dumps({"type": "response.cancel", **named}))
        while events[-1]["type"] not in LAST:
            events.append(received(session))
        last = events[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
        deltas = [one["delta"] for one in events if one["type"] == "response.output_text.delta"]
        assert text_of(last) == "".join(deltas) != ""
        assert [one["sequence_number"] for one in events] == list(range(len(events)))
        wait_for(lambda: is_idle(model))
        assert asked(session)[-1]["type"] in LAST[:2]


def test_binary_messages_count_as_text(client: TestClient) -> None:
    with connected(client) as session:
        session.send_bytes(json.dumps(ASKED).encode())
        assert received(session)["type"] == "response.created"


def test_too_many_requests_are_refused(client: TestClient, model: Model) -> None:
    with connected(client) as session:
        for _ in range(socket.MOST_REQUESTS + 1):
            session.send_text(json.dumps(LONG))
        while (event := received(session))["type"] != "error":
            pass
    assert event["status"] == 429
    assert event["error"]["headers"] == {"Retry-After": "1"}
    wait_for(lambda: is_idle(model))  # the client has left, so all are cancelled


def test_too_many_lanes_are_refused(client: TestClient) -> None:
    with connected(client) as session:
        for lane in range(socket.MOST_LANES + 1):
            session.send_text(json.dumps({**LONG, "stream_id": str(lane)}))
        while (event := received(session))["type"] != "error":
            pass
    assert "values of stream_id" in event["error"]["message"]
    assert event["stream_id"] == str(socket.MOST_LANES)


def test_long_messages_are_refused(make: MakeApp) -> None:
    with (
        TestClient(make(max_body=4096), base_url="http://localhost") as client,
        connected(client) as session,
    ):
        event = asked(session, input="x" * 5000)[-1]
        assert (event["status"], event["error"]["code"]) == (413, "body_too_long")
        # Each is short enough, but not all that wait.
        for _ in range(4):
            session.send_text(json.dumps({**LONG, "input": "x" * 1500}))
        while (event := received(session))["type"] != "error":
            pass
    assert event["status"] == 429


def test_a_key_is_needed(make: MakeApp) -> None:
    with TestClient(make(api_key=[KEY]), base_url="http://localhost") as client:
        with pytest.raises(WebSocketDenialResponse) as refused, connected(client):
            pass
        assert refused.value.status_code == 401
        assert refused.value.json()["error"]["code"] == "invalid_api_key"
        assert refused.value.headers["x-request-id"]
        with connected(client, headers={"Authorization": f"Bearer {KEY}"}) as session:
            assert asked(session)[-1]["type"] in LAST[:2]


@pytest.mark.parametrize(
    ("headers", "status"), [({"Origin": "https://evil.example"}, 403), ({"Host": "evil"}, 403)]
)
def test_other_sites_are_refused(client: TestClient, headers: Any, status: int) -> None:
    with pytest.raises(WebSocketDenialResponse) as refused, connected(client, headers=headers):
        pass
    assert refused.value.status_code == status


def test_other_paths_have_none(client: TestClient) -> None:
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect("ws://localhost/v1/chat/completions"),
    ):
        pass
    assert refused.value.status_code == 404
    assert PATH in refused.value.json()["error"]["message"]


def test_requests_that_are_not_understood_say_why(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = {"Upgrade": "websocket"}
    response = client.get(PATH, headers=asks)
    assert response.status_code == 400
    assert "lacks `Connection: Upgrade`" in response.json()["error"]["message"]
    monkeypatch.setattr(app, "has_websockets", lambda: False)
    response = client.get(PATH, headers=asks)
    assert response.status_code == 501
    assert "wsproto" in response.json()["error"]["message"]
    assert client.get(PATH).status_code == 405


def test_a_disabled_path_says_so(make: MakeApp) -> None:
    with (
        TestClient(make(disable=[PATH]), base_url="http://localhost") as client,
        connected(client) as session,
    ):
        assert asked(session)[-1]["status"] == 501


def test_keys_do_not_see_each_others_responses(make: MakeApp) -> None:
    with TestClient(make(api_key=[KEY, OTHER_KEY]), base_url="http://localhost") as client:
        one, two = ({"Authorization": f"Bearer {key}"} for key in (KEY, OTHER_KEY))
        with connected(client, headers=one) as session:
            made = asked(session)[-1]["response"]["id"]
        with connected(client, headers=two) as session:
            event = asked(session, previous_response_id=made)[-1]
    assert event["error"]["code"] == "previous_response_not_found"


def test_crowded_connections_are_refused(make: MakeApp) -> None:
    served = make()

    async def crowded(scope: Any, receive: Any, send: Any) -> None:
        await served({**scope, CROWDED: True}, receive, send)

    with TestClient(crowded, base_url="http://localhost") as client:
        with pytest.raises(WebSocketDisconnect) as refused, connected(client):
            pass
        assert refused.value.code == 1013
