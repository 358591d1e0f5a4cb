from __future__ import annotations

import base64
import random
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from trinity.conversation import messages
from trinity.conversation.messages import data_of_url, decoded_image, read_messages
from trinity.errors import InputError

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_content_of_text_parts_becomes_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_messages([{"role": "user", "content": parts}])[0]["content"] == "a\nb"


def test_arguments_become_objects_and_tools_get_names() -> None:
    read = read_messages(
        [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "content": "1", "tool_call_id": "c1"},
            {"role": "function", "content": "2", "name": "g"},
        ]
    )
    assert read[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert read[1]["content"] is None
    assert read[2]["name"] == "f"
    assert (read[3]["role"], read[3]["name"]) == ("tool", "g")
    assert read_messages(read) == read


def test_the_older_form_of_a_call() -> None:
    older = {"role": "assistant", "content": None, "function_call": CALL["function"]}
    (read,) = read_messages([older])
    assert read["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert "function_call" not in read


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_no_content_where_there_may_be_none(role: str) -> None:
    read = read_messages([{"role": role, "content": None}, {"role": role}])
    assert [one["content"] for one in read] == [None, None]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_has_one_name(key: str) -> None:
    read = read_messages([{"role": "assistant", "content": "x", key: "hm"}])
    assert read == [{"role": "assistant", "content": "x", "reasoning_content": "hm"}]


@pytest.mark.parametrize("arguments", [{}, "{}", "", " ", None, "null", [], "[]"])
def test_calls_without_arguments(arguments: object) -> None:
    """PHP writes an empty object as an empty list."""
    call = {"function": {"name": "f", "arguments": arguments}}
    (message,) = read_messages([{"role": "assistant", "tool_calls": [call]}])
    assert message["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "user"}, 'message 0 has no "content".*give its text, as in'),
        ({"content": "x"}, 'message 0 has no "role"'),
        ({"role": "user", "content": [{"type": "image_url"}]}, "part 0 has the type 'image_url'"),
        ({"role": "user", "content": [{"type": "text"}]}, "part 0 has no text"),
        ({"role": "user", "content": 3}, "content is int"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "but the role 'user'"),
        ({"role": "assistant", "tool_calls": [{}]}, "call 0 has no function"),
        ({"role": "assistant", "tool_calls": "x"}, "tool_calls is str; it must be a list"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
            "arguments are not valid JSON",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
            "arguments are list",
        ),
        ({"role": "tool", "content": "x", "tool_call_id": 3}, "tool_call_id is not text"),
        ({"role": "assistant", "content": "x", "thinking": 3}, "reasoning is int"),
    ],
)
def test_malformed_messages(message: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_messages([message])


def test_images_are_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are those of Python's functions, which decode at once, and so are the refusals."""
    monkeypatch.setattr(messages, "_PIECE", 7)
    chance, refused = random.Random(1), 0
    for _ in range(3000):
        letters = list(base64.b64encode(chance.randbytes(chance.randrange(30))).decode())
        for _ in range(chance.choice((0, 0, 1, 2))):
            letters.insert(chance.randrange(len(letters) + 1), chance.choice(" \n\tA=*B"))
        text = "".join(letters)
        try:
            expected = base64.b64decode("".join(text.split()), validate=True)
        except ValueError:
            refused += 1
            with pytest.raises(InputError, match="its base64 is damaged"):
                decoded_image("x", text)
        else:
            assert decoded_image("x", text) == expected
        escaped = "".join(chance.choice("a%4é1F%") for _ in range(chance.randrange(30)))
        assert data_of_url("x", f"data:,{escaped}") == unquote_to_bytes(escaped)
    assert 300 < refused < 2700
