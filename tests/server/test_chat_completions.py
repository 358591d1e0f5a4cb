"""OpenAI's chat completions, streamed or not, and every parameter."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from tests.server.asgi import events, strict
from trinity.model import Model
from trinity.server.endpoints.chat_completions import ChatRequest, chunks

PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Who was Prince Andrew?"}]
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={"messages": HELLO, **GREEDY, **body})
    assert response.status_code == 200, response.text
    return strict(response.text)


def streamed(client: TestClient, **body: Any) -> list[Any]:
    response = client.post(PATH, json={"messages": HELLO, **GREEDY, "stream": True, **body})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events(response.content)


def text_of(found: list[Any], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for event in found[:-1]
        for choice in event["choices"]
        if choice["index"] == index
    )


def test_answer_is_the_models(client: TestClient, model: Model) -> None:
    answer = post(client)
    (choice,) = answer["choices"]
    prompt = f"<|im_start|>user\n{HELLO[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    alone = model.generate(
        prompt, parse_special=True, temperature=0, max_tokens=12, ignore_eos=True
    )
    assert choice["message"]["content"] == alone.text
    assert choice["message"]["role"] == "assistant"
    assert (choice["finish_reason"], choice["index"], choice["logprobs"]) == ("length", 0, None)
    usage = answer["usage"]
    assert usage["prompt_tokens"] == alone.prompt_tokens
    assert usage["completion_tokens"] == 12
    assert usage["total_tokens"] == alone.prompt_tokens + 12
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "demo"


def test_stream_has_the_shape_that_clients_expect(client: TestClient) -> None:
    found = streamed(client, stream_options={"include_usage": True})
    first, *pieces, last, usage, done = found
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all(set(one["choices"][0]["delta"]) == {"content"} for one in pieces)
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "length")
    assert all(one["choices"][0]["finish_reason"] is None for one in [first, *pieces])
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 12
    assert all(one["usage"] is None for one in found[:-2])
    assert done == "[DONE]"
    assert len({one["id"] for one in found[:-1]}) == 1
    assert text_of(found) == post(client)["choices"][0]["message"]["content"]


class ReadingThePrompt:
    """A response without a token so far."""

    created, name = 0, "demo"

    def found_by(self, completion: str) -> None:
        pass

    def __aiter__(self) -> ReadingThePrompt:
        return self

    async def __anext__(self) -> Any:
        await asyncio.Event().wait()


def test_a_stream_sends_nothing_before_the_first_token() -> None:
    answers: Any = ReadingThePrompt()
    body = msgspec.convert({"messages": HELLO, "stream": True}, ChatRequest)
    box: Any = None
    sent = chunks(answers, body=body, box=box, verbose=False)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(anext(sent), 0.05))


def test_stream_without_options_has_no_usage(client: TestClient) -> None:
    assert all("usage" not in one for one in streamed(client)[:-1])


def test_several_answers_share_a_prompt(client: TestClient) -> None:
    answer = post(client, n=3, seed=5, temperature=1.0)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == 36
    one = post(client, seed=6, temperature=1.0)
    assert one["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert texts[1] == one["choices"][0]["message"]["content"]  # seed + 1
    found = streamed(client, n=3, seed=5, temperature=1.0)
    assert [text_of(found, index) for index in range(3)] == texts


def test_seed_may_be_any_64_bit_integer(client: TestClient) -> None:
    texts = [
        post(client, seed=seed, temperature=1.0)["choices"][0]["message"]["content"]
        for seed in (-(2**63), -(2**63), 2**63 - 1)
    ]
    assert texts[0] == texts[1]


def test_logprobs_are_of_each_token(client: TestClient, model: Model) -> None:
    (choice,) = post(client, logprobs=True, top_logprobs=3)["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == 12
    assert "".join(one["token"] for one in content) == choice["message"]["content"]
    assert b"".join(bytes(one["bytes"]) for one in content).decode() == choice["message"]["content"]
    for one in content:  # greedy: the best token is the one
        assert one["top_logprobs"][0]["token"] == one["token"]
        assert one["top_logprobs"][0]["logprob"] == one["logprob"] <= 0
        assert len(one["top_logprobs"]) == 3
        for token in (one, *one["top_logprobs"]):  # llama.cpp's ids
            assert list(model.tokenizer.bytes_of(token["id"])) == token["bytes"]
    pieces = [
        one
        for event in streamed(client, logprobs=True, top_logprobs=3)[:-1]
        if event["choices"][0]["logprobs"]
        for one in event["choices"][0]["logprobs"]["content"]
    ]
    assert pieces == content


def test_logit_bias_forbids_and_forces(client: TestClient, model: Model) -> None:
    (token,) = model.tokenize(" the", add_bos=False)
    forced = post(client, logit_bias={str(token): 100})["choices"][0]["message"]["content"]
    assert forced == " the" * 12
    forced = post(client, logit_bias={str(token): 100}, max_tokens=None, max_completion_tokens=2)
    assert forced["choices"][0]["message"]["content"] == " the" * 2


def test_content_may_come_in_parts(client: TestClient) -> None:
    parts = [{"type": "text", "text": "Who was"}, {"type": "text", "text": "he?"}]
    assert (
        post(client, messages=[{"role": "user", "content": parts}])["choices"]
        == post(client, messages=[{"role": "user", "content": "Who was\nhe?"}])["choices"]
    )


def test_what_changes_nothing_is_taken(client: TestClient) -> None:
    more = {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto",
            "safety_identifier": "s", "prompt_cache_key": "k", "parallel_tool_calls": True,
            "response_format": {"type": "text"}, "modalities": ["text"]}  # fmt: skip
    assert post(client, **more)["choices"] == post(client)["choices"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].image_url",
        ),
        ({"messages": "x"}, "messages"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"presence_penalty": 101}, "presence_penalty"),
        ({"modalities": ["text", "audio"]}, "modalities[1]"),
        ({"n": 0}, "n"),
        ({"n": 100}, "n"),
        ({"max_tokens": 4, "max_completion_tokens": 5}, "max_tokens"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"seed": 2**63}, "seed"),
        ({"response_format": {"type": "sound"}}, "response_format.type"),
        ({"model": "other"}, "model"),
    ],
)
def test_refusal_names_the_parameter(client: TestClient, body: Any, param: str) -> None:
    response = client.post(PATH, json={"messages": HELLO, **body})
    assert response.status_code == (404 if "model" in body else 400), response.text
    error = strict(response.text)["error"]
    assert error["param"] == param
    assert error["type"] == ("not_found_error" if "model" in body else "invalid_request_error")
    assert param.split("[")[0].split(".")[-1] in error["message"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"messages": "\\ud800"}', b"[" * 50_000, b"1" * 10000],
)
def test_what_is_no_request_is_refused(client: TestClient, body: bytes) -> None:
    response = client.post(PATH, content=body)
    assert response.status_code == 400
    assert strict(response.text)["error"]["message"]


def test_requirement_18_no_truncation_in_silence(client: TestClient, model: Model) -> None:
    for stream in (False, True):
        messages = [{"role": "user", "content": "war and peace " * 400}]
        response = client.post(PATH, json={"messages": messages, "stream": stream})
        assert response.status_code == 400
        error = strict(response.text)["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["n_ctx"] == model.context_length
        assert error["n_prompt_tokens"] > model.context_length
        assert str(error["n_ctx"]) in error["message"]
        assert str(error["n_prompt_tokens"]) in error["message"]


def test_requirement_6_a_turn_evaluates_what_is_new(client: TestClient) -> None:
    first = post(client, messages=HELLO)
    told = first["choices"][0]["message"]["content"]
    more = [*HELLO, {"role": "assistant", "content": told}, {"role": "user", "content": "Why?"}]
    second = post(client, messages=more)["usage"]
    assert second["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    again = post(client, messages=more, cache_prompt=False)["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == 0


def test_requirement_13_no_half_characters(client: TestClient, model: Model) -> None:
    """Tokens are single bytes; the streamed text equals the whole text."""
    ids = {token: 100 for char in "é媽" for token in model.tokenize(char, add_bos=False)}
    body = {"logit_bias": ids, "temperature": 2.0, "max_tokens": 60, "top_k": 0, "seed": 3}
    (choice,) = post(client, **body, logprobs=True)["choices"]
    data = b"".join(bytes(one["bytes"]) for one in choice["logprobs"]["content"])
    expected = data.decode("utf-8", "replace")
    assert choice["message"]["content"] == expected
    assert any(char not in "\ufffd " for char in expected)  # some characters came out whole
    assert text_of(streamed(client, **body)) == expected


def test_requirement_14_a_stop_string_across_tokens(client: TestClient) -> None:
    text = post(client, max_tokens=40)["choices"][0]["message"]["content"]
    for start, end in ((5, 9), (11, 20), (7, 8)):
        stop = text[start:end]
        expected = text[: text.index(stop)]
        whole = post(client, max_tokens=40, stop=[stop, "never this"])["choices"][0]
        assert (whole["message"]["content"], whole["finish_reason"]) == (expected, "stop")
        found = streamed(client, max_tokens=40, stop=stop)
        assert text_of(found) == expected
        assert found[-2]["choices"][0]["finish_reason"] == "stop"
