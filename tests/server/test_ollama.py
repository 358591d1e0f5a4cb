"""Ollama's API: lines and whole answers, options, models; what has no meaning is refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import strict
from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.server.endpoints.ollama.answer import AnswerWriter, chat_answer, whole
from trinity.server.endpoints.ollama.generate import OllamaChatRequest, OllamaGenerateRequest
from trinity.server.endpoints.ollama.models import short_count
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob, End, Piece, TextJob
from trinity.server.schemas import decoded, encode

HELLO = [{"role": "user", "content": "Who was Pierre?"}]
CHAT = {"model": "demo", "messages": HELLO, "options": {"temperature": 0, "num_predict": 8}}
PROMPT = "<|im_start|>user\nWho was Pierre?<|im_end|>\n<|im_start|>assistant\n"


def lines(client: TestClient, path: str, **body: Any) -> list[Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    return [strict(line) for line in response.text.splitlines()]


def post(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return strict(response.text)


def test_chat_is_the_models_in_lines_and_whole(client: TestClient, model: Model) -> None:
    alone = model.generate(PROMPT, parse_special=True, temperature=0, max_tokens=8)
    *pieces, last = lines(client, "/api/chat", **CHAT)
    assert "".join(line["message"]["content"] for line in pieces) == alone.text
    assert not any(line["done"] for line in pieces)
    assert (last["done"], last["done_reason"]) == (True, "length")
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["prompt_eval_count"], last["eval_count"]) == (alone.prompt_tokens, 8)
    for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"):
        assert last[name] >= 0
    assert last["total_duration"] >= last["eval_duration"]
    answer = post(client, "/api/chat", stream=False, **CHAT)
    assert answer["message"]["content"] == alone.text
    assert datetime.fromisoformat(answer["created_at"]).tzinfo is not None


def test_generate_has_a_template_or_none(client: TestClient, model: Model) -> None:
    options = {"temperature": 0, "num_predict": 8}
    alone = model.generate(PROMPT, parse_special=True, temperature=0, max_tokens=8).text
    asked = {"model": "demo", "prompt": "Who was Pierre?", "options": options}
    *pieces, last = lines(client, "/api/generate", **asked)
    assert "".join(line["response"] for line in pieces) == alone
    assert last["done_reason"] == "length"
    raw = {"model": "demo", "prompt": PROMPT, "raw": True, "stream": False, "options": options}
    assert post(client, "/api/generate", **raw)["response"] == alone
    told = post(client, "/api/generate", **asked, system="Be short.", stream=False)
    assert told["prompt_eval_count"] > last["prompt_eval_count"]


def test_logprobs(client: TestClient) -> None:
    answer = post(client, "/api/chat", **CHAT, stream=False, logprobs=True, top_logprobs=2)
    assert len(answer["logprobs"]) == 8
    assert {len(one["top_logprobs"]) for one in answer["logprobs"]} == {2}
    found = lines(client, "/api/chat", **CHAT, logprobs=True)
    assert sum(len(line.get("logprobs", [])) for line in found) == 8


def test_nothing_asked_only_loads(client: TestClient) -> None:
    for path, what in (("/api/chat", "message"), ("/api/generate", "response")):
        answer = post(client, path, model="demo", keep_alive="5m")
        assert (answer["done"], answer["done_reason"]) == (True, "load")
        assert what in answer


def test_names_may_have_a_tag(client: TestClient) -> None:
    answer = post(client, "/api/chat", **{**CHAT, "model": "demo:latest"}, stream=False)
    assert answer["model"] == "demo:latest"
    response = client.post("/api/chat", json={**CHAT, "model": "demo:7b"})
    assert response.status_code == 404
    assert "demo:7b" in strict(response.text)["error"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"options": {"num_ctx": 100_000}}, "options.num_ctx"),
        ({"options": {"mirostat": 1}}, "options.mirostat"),
        ({"options": {"typical_p": 0.5}}, "options.typical_p"),
        ({"options": {"num_gpu": 99}}, "options.num_gpu"),
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"keep_alive": 0}, "keep_alive"),
        ({"keep_alive": "0s"}, "keep_alive"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"truncate": True}, "truncate"),
        ({"shift": True}, "shift"),
        ({"think": "much"}, "think"),
        ({"format": "xml"}, "format"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "images"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
    ],
)
def test_what_has_no_meaning_is_refused_by_its_name(
    client: TestClient, body: dict[str, Any], word: str
) -> None:
    response = client.post("/api/chat", json={**CHAT, **body})
    assert response.status_code == 400, response.text
    found = strict(response.text)
    assert set(found) == {"error"}
    assert word in found["error"]


def test_refusals_of_generate(client: TestClient) -> None:
    for body, word in (
        ({"raw": True, "system": "a"}, "system"), ({"model": ""}, "model"),
    ):  # fmt: skip
        response = client.post("/api/generate", json={"model": "demo", "prompt": "a", **body})
        assert response.status_code == 400
        assert word in strict(response.text)["error"]
    response = client.post("/api/generate", json={"model": "demo", "prompt": "war " * 2000})
    assert response.status_code == 400
    assert "512" in strict(response.text)["error"]


def job_of(kind: Any, **body: Any) -> Any:
    return decoded(encode({"model": "demo", **body}), kind).job()


def test_options_are_the_engines() -> None:
    given = {
        "seed": 5, "num_predict": 7, "num_ctx": 100, "num_keep": 4, "temperature": 0.5, "top_k": 3,
        "top_p": 0.4, "min_p": 0.1, "repeat_penalty": 1.1, "repeat_last_n": 5,
        "presence_penalty": 0.2, "frequency_penalty": 0.3, "stop": ["x"], "typical_p": 1,
        "mirostat": 0, "num_gpu": 0,
    }  # fmt: skip
    job = job_of(OllamaChatRequest, messages=HELLO, options=given, think="low")
    assert job.options == {
        "seed": 5, "max_tokens": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.4, "min_p": 0.1,
        "repetition_penalty": 1.1, "penalty_last_n": 5, "presence_penalty": 0.2,
        "frequency_penalty": 0.3, "stop": ["x"],
    }  # fmt: skip
    assert job.effort == "low"
    assert not job.whole
    free = job_of(
        OllamaChatRequest, messages=HELLO, options={"seed": -1, "num_predict": -1}, think=False
    )
    assert (free.options, free.effort) == ({}, "none")
    assert job_of(OllamaChatRequest, messages=HELLO, think=True).effort == "some"
    raw = job_of(OllamaGenerateRequest, prompt="a", raw=True, stream=False)
    assert raw == TextJob(["a"], {"parse_special": True}, whole=True)


def test_messages_become_those_of_templates() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
    job: ChatJob = job_of(
        OllamaChatRequest,
        messages=[
            *HELLO,
            {"role": "assistant", "content": "", "thinking": "Hm.",
             "tool_calls": [call, {"function": {"name": "clock", "arguments": {}}}]},
            {"role": "tool", "content": "noon", "tool_name": "clock"},
            {"role": "tool", "content": "rain"},
        ],
    )  # fmt: skip
    _, called, clock, weather = job.messages
    assert called["reasoning_content"] == "Hm."
    first, second = called["tool_calls"]
    assert first["function"] == {"name": "weather", "arguments": '{"city":"Paris"}'}
    assert first["id"] != second["id"]
    assert clock == {
        "role": "tool", "content": "noon", "name": "clock", "tool_call_id": second["id"],
    }  # fmt: skip
    assert weather["tool_call_id"] == first["id"]


def answered(pieces: Sequence[Piece], end: End) -> list[Any]:
    writer = AnswerWriter("m", time.perf_counter(), chat_answer, lambda found: [])
    return [line for piece in pieces for line in writer.add(piece)] + list(writer.end(end))


PIECES = (
    Piece(0, (Reasoning("Hm."), Text("I "))),
    Piece(0, (Text("ask."), CallStart(0, "a", "weather"), CallArguments(0, '{"city"'))),
    Piece(0, (CallArguments(0, ':"Paris"}'), CallStart(1, "b", "clock"))),
    Piece(0, (CallArguments(1, "{}"),)),
)


def test_calls_come_whole() -> None:
    end = End(0, "stop", Timings(), called=True)
    found = [strict(encode(line)) for line in answered(PIECES, end)]
    calls = [call for line in found for call in line["message"].get("tool_calls", [])]
    assert [call["function"]["name"] for call in calls] == ["weather", "clock"]
    assert calls[0]["function"]["arguments"] == {"city": "Paris"}
    assert found[0]["message"]["thinking"] == "Hm."
    assert found[-1]["done_reason"] == "stop"
    one = strict(encode(whole(answered(PIECES, end))))
    assert one["message"]["content"] == "I ask."
    assert one["message"]["tool_calls"] == calls


def test_a_call_that_was_cut_does_not_come() -> None:
    found = whole(answered(PIECES[:2], End(0, "length", Timings())))
    assert "tool_calls" not in strict(encode(found))["message"]
    assert found.done_reason == "length"


def test_vectors_are_the_models(client: TestClient, model: Model) -> None:
    texts = ["one", "two words"]
    answer = post(client, "/api/embed", model="demo", input=texts)
    assert np.array_equal(np.array(answer["embeddings"], np.float32), model.embed(texts))
    assert answer["prompt_eval_count"] > 2
    one = post(client, "/api/embed", model="demo", input="one", dimensions=8)
    assert np.shape(one["embeddings"]) == (1, 8)
    old = post(client, "/api/embeddings", model="demo", prompt="one")
    assert np.array_equal(np.array(old["embedding"], np.float32), model.embed(["one"])[0])
    for path, body in (
        ("/api/embed", {"input": ["a", ""]}), ("/api/embed", {"input": "a", "truncate": True}),
        ("/api/embeddings", {"prompt": ""}),
    ):  # fmt: skip
        assert client.post(path, json={"model": "demo", **body}).status_code == 400


def test_models(client: TestClient, model: Model) -> None:
    (tag,) = strict(client.get("/api/tags").text)["models"]
    assert (tag["name"], tag["details"]["family"]) == ("demo", model.config.architecture)
    assert tag["details"]["quantization_level"] == "I2_S"
    assert len(tag["digest"]) == 64
    (loaded,) = strict(client.get("/api/ps").text)["models"]
    assert loaded["context_length"] == 512
    assert datetime.fromisoformat(loaded["expires_at"]).year == 9999
    assert strict(client.get("/api/version").text) == {"version": trinity.__version__}


def test_show(client: TestClient, model: Model) -> None:
    found = post(client, "/api/show", model="demo")
    assert found["model_info"]["general.architecture"] == model.config.architecture
    assert found["model_info"]["tokenizer.ggml.tokens"] is None
    assert "completion" in found["capabilities"]
    verbose = post(client, "/api/show", model="demo", verbose=True)
    assert len(verbose["model_info"]["tokenizer.ggml.tokens"]) == model.config.vocab_size


def test_errors_have_ollamas_form_everywhere(client: TestClient) -> None:
    for response in (
        client.post("/api/pull", json={"model": "x"}),
        client.get("/api/chat"),
        client.post("/api/chat", content=b"{"),
        client.get("/api/tags", headers={"host": "evil.example"}),
    ):
        assert response.status_code in (400, 403, 404, 405)
        assert set(strict(response.text)) == {"error"}
        assert isinstance(strict(response.text)["error"], str)


def test_a_failure_ends_a_stream_with_an_error(client: TestClient) -> None:
    from trinity.server.service import Answers

    def break_down(*arguments: Any) -> Any:
        raise ApiError(503, "the server is being stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_read", break_down)
        *_, last = lines(client, "/api/chat", **CHAT)
    assert last == {"error": "the server is being stopped"}


@pytest.mark.parametrize(
    ("count", "text"), [(900, "900"), (5_300_000, "5.3M"), (7_615_000_000, "7.6B")]
)
def test_numbers_of_parameters(count: int, text: str) -> None:
    assert short_count(count) == text
