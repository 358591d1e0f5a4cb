"""Fields without an effect are accepted and named, or refused by a strict server."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import pytest
from starlette.testclient import TestClient

from tests.server.conftest import MakeApp
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.schemas import Body, converted, decoded

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "Who was he?"}], "max_tokens": 4, "seed": 1}
HEADER = "x-trinity-ignored"


class Cat(Body, tag_field="type", tag="cat"):
    lives: int = 9


class Dog(Body, tag_field="type", tag="dog"):
    name: str


class Inner(Body):
    size: int | None = None


class Outer(Body):
    count: int = 1
    inner: Inner | None = None
    several: list[Inner] | None = None
    pet: Cat | Dog | None = None
    text: str | list[Inner] = ""
    free: dict[str, Any] | None = None
    tier: Ignorable[Literal["auto"] | None] = None
    other: str | None = msgspec.field(default=None, name="otherName")


def read(body: Any, *, strict: bool = False) -> tuple[Outer, list[str]]:
    found = Ignored(strict)
    return decoded(found, msgspec.json.encode(body), Outer), found.names


@pytest.mark.parametrize(
    ("body", "expected", "names"),
    [
        ({"count": 2}, Outer(count=2), []),
        ({"x": 1, "count": 2}, Outer(count=2), ["x"]),
        ({"x": None}, Outer(), []),  # null says nothing
        ({"count": None}, Outer(), []),
        ({"inner": []}, Outer(inner=Inner()), []),  # as PHP writes an empty object
        ({"free": [], "several": [[]]}, Outer(free={}, several=[Inner()]), []),
        ({"text": [[]]}, Outer(text=[Inner()]), []),
        ({"count": "3"}, Outer(count=3), []),
        ({"count": 3.0}, Outer(count=3), []),
        ({"inner": {"size": 1, "y": {"z": 1}}}, Outer(inner=Inner(1)), ["inner.y"]),
        (
            {"several": [{"a": 1}, {"size": 2}]},
            Outer(several=[Inner(), Inner(2)]),
            ["several[0].a"],
        ),
        ({"pet": {"type": "cat", "name": "Tom"}}, Outer(pet=Cat()), ["pet.name"]),
        ({"pet": {"type": "dog", "name": "Rex", "lives": 1}}, Outer(pet=Dog("Rex")), ["pet.lives"]),
        ({"text": [{"b": 1}]}, Outer(text=[Inner()]), ["text[0].b"]),
        ({"free": {"a": {"b": None}}, "c": 1}, Outer(free={"a": {"b": None}}), ["c"]),
        ({"tier": "auto", "d": 1}, Outer(tier="auto"), ["d"]),
        ({"tier": "flex"}, Outer(), ["tier"]),
        ({"otherName": "a", "other": "b"}, Outer(other="a"), ["other"]),
    ],
)
def test_what_is_not_declared_is_dropped_by_name(
    body: Any, expected: Outer, names: list[str]
) -> None:
    assert read(body) == (expected, names)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"count": "many", "x": 1}, "count"),
        ({"inner": {"size": []}}, "inner.size"),
        ({"pet": {"type": "cow"}}, "pet.type"),
        ({"pet": {"type": "dog", "x": 1}}, "pet.name"),
        ({"text": 1}, "text"),
    ],
)
def test_wrong_values_of_declared_fields_stay_errors(body: Any, param: str) -> None:
    with pytest.raises(ApiError) as error:
        read(body)
    assert error.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [({"x": 1}, "x"), ({"inner": {"y": 1}}, "inner.y"), ({"tier": "flex"}, "tier"),
     ({"count": "3"}, "count")],
)  # fmt: skip
def test_a_strict_server_refuses_them(body: Any, param: str) -> None:
    with pytest.raises(ApiError) as error:
        read(body, strict=True)
    assert (error.value.status, error.value.param) == (400, param)


def test_a_part_is_named_by_its_place() -> None:
    found = Ignored()
    assert converted(found, {"size": 1, "y": 2}, Inner, "input[3]") == Inner(1)
    assert found.names == ["input[3].y"]


def test_an_answer_names_them_whether_whole_or_streamed(client: TestClient) -> None:
    body = {**HELLO, "verbosity": "low", "messages": [{**HELLO["messages"][0], "weight": 1}]}  # type: ignore[index]
    whole = client.post(CHAT, json=body)
    assert whole.status_code == 200
    assert whole.headers[HEADER] == "messages[0].weight, verbosity"
    assert client.post(CHAT, json={**body, "stream": True}).headers[HEADER] == whole.headers[HEADER]
    assert HEADER not in client.post(CHAT, json=HELLO).headers
    assert whole.json()["choices"] == client.post(CHAT, json=HELLO).json()["choices"]


def test_requests_at_the_same_time_have_names_of_their_own(client: TestClient) -> None:
    async def one(name: str) -> str:
        response = await asyncio.to_thread(client.post, CHAT, json={**HELLO, name: 1})
        return str(response.headers[HEADER])

    async def run() -> list[str]:
        return await asyncio.gather(*(one(f"field{i}") for i in range(8)))

    assert asyncio.run(run()) == [f"field{i}" for i in range(8)]


def test_a_strict_server_names_the_field(make: MakeApp) -> None:
    with TestClient(make(strict=True), base_url="http://localhost") as client:
        refused = client.post(CHAT, json={**HELLO, "verbosity": "low"})
        assert client.post(CHAT, json=HELLO).status_code == 200
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "verbosity"


def test_a_field_without_a_name_is_named(client: TestClient) -> None:
    """h11 refuses header values that end with a space (RFC 9110, 5.5)."""
    found = Ignored(names=["purpose", ""]).header
    assert found == 'purpose, ""'
    response = client.post(CHAT, json={**HELLO, "": 1})
    assert response.headers[HEADER] == '""'


def test_the_header_stays_short_and_safe(client: TestClient) -> None:
    hostile = {f"a\r\nSet-Cookie: {i}, {'é' * 1000}": 1 for i in range(50)}
    response = client.post(CHAT, json={**HELLO, **hostile})
    assert response.status_code == 200
    header = response.headers[HEADER]
    assert header.endswith(", and 18 more")
    assert len(header) < 3000
    assert "set-cookie" not in response.headers
