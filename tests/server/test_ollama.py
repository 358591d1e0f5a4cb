"""Ollama's API: lines and whole responses, options, fields without an effect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.server.ollama_calls import CHAT, HELLO, PROMPT, lines, post
from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.server.endpoints.ollama.answer import (
    MOST_TOGETHER,
    AnswerWriter,
    chat_answer,
    whole,
)
from trinity.server.endpoints.ollama.generate import OllamaChatRequest, OllamaGenerateRequest
from trinity.server.endpoints.ollama.generate import lines as written_lines
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob, End, TextJob, Update
from trinity.server.schemas import decoded, encode

PIECES = (
    Update(0, (Reasoning("Hm."), Text("I "))),
    Update(0, (Text("ask."), CallStart(0, "a", "weather"), CallArguments(0, '{"city"'))),
    Update(0, (CallArguments(0, ':"Paris"}'), CallStart(1, "b", "clock"))),
    Update(0, (CallArguments(1, "{}"),)),
)


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


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"options": {"num_ctx": 100_000}}, "options.num_ctx"),
        ({"options": {"num_ctx": 64, "num_gpu": 0, "typical_p": 1.0, "use_mmap": True}}, ""),
        ({"options": {"num_gpu": 99, "num_thread": 2, "num_batch": 512, "f16_kv": True}},
         "options.num_gpu, options.num_thread, options.num_batch, options.f16_kv"),
        ({"options": {"mirostat": 1, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "x": 1}},
         "options.x"),
        ({"options": {"typical_p": 0.7, "use_mlock": True, "embedding_only": True}},
         "options.use_mlock, options.embedding_only"),
        ({"options": {"top_k": -1, "stop": [""], "num_predict": "3", "temperature": None}}, ""),
        ({"keep_alive": -1}, ""),
        ({"keep_alive": "1h30m"}, ""),
        ({"truncate": True, "shift": False, "think": False, "format": "", "tools": []}, ""),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"messages": [{"role": "User", "content": "a", "images": []}]}, ""),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_accepted_and_named(
    client: TestClient, body: dict[str, Any], names: str
) -> None:
    options = {"num_predict": 4, **body.get("options", {})}
    response = client.post("/api/chat", json={**CHAT, **body, "options": options})
    assert response.status_code == 200, response.text
    assert response.headers.get("x-trinity-ignored", "") == names


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"options": {"seed": "many"}}, "options.seed"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"keep_alive": "5 parsecs"}, "keep_alive"),
        ({"think": "much"}, "think"),
        ({"think": True}, '"demo" does not support thinking'),
        ({"think": "high"}, '"demo" does not support thinking'),
        ({"format": "xml"}, "format"),
        ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "reads only text"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": "{"}}],
                    }
                ]
            },
            "messages[0].tool_calls",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused_by_its_name(
    client: TestClient, body: dict[str, Any], word: str
) -> None:
    response = client.post("/api/chat", json={**CHAT, **body})
    assert response.status_code == 400, response.text
    found = strict(response.text)
    assert set(found) == {"error"}
    assert word in found["error"]


@pytest.fixture
def job_of(model: Model) -> Callable[..., Any]:
    """Make the job of a request's body."""

    def made(kind: Any, **body: Any) -> Any:
        data = encode({"model": "demo", **body})
        return decoded(Ignored(), data, kind).job(Ignored(), model)

    return made


def test_options_are_the_engines(job_of: Callable[..., Any]) -> None:
    given = {
        "seed": 5, "num_predict": 7, "num_ctx": 100, "num_keep": 4, "temperature": 0.5, "top_k": 3,
        "top_p": 0.4, "min_p": 0.1, "repeat_penalty": 1.1, "repeat_last_n": 5,
        "presence_penalty": 0.2, "frequency_penalty": 0.3, "stop": ["x"], "typical_p": 1.5,
        "mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.2, "num_gpu": 0,
    }  # fmt: skip
    job = job_of(OllamaChatRequest, messages=HELLO, options=given, think="low")
    assert job.options == {
        "seed": 5, "max_tokens": 7, "temperature": 0.5, "top_k": 3, "top_p": 0.4, "min_p": 0.1,
        "repetition_penalty": 1.1, "penalty_last_n": 5, "presence_penalty": 0.2,
        "frequency_penalty": 0.3, "stop": ["x"], "typical_p": 1.0, "mirostat": 2,
        "mirostat_tau": 4.0, "mirostat_eta": 0.2,
    }  # fmt: skip
    assert job.effort == "low"
    assert not job.whole
    free = job_of(
        OllamaChatRequest, messages=HELLO, options={"seed": -1, "num_predict": -1}, think=False
    )
    assert (free.options, free.effort) == ({}, "none")
    assert job_of(OllamaChatRequest, messages=HELLO, think=True).effort == "some"
    raw = job_of(OllamaGenerateRequest, prompt="a", raw=True, stream=False)
    assert raw == TextJob(["a"], {"parse_special": True}, whole=True, cut_after=4)


def test_messages_become_those_of_templates(job_of: Callable[..., Any]) -> None:
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
        "role": "tool",
        "content": "noon",
        "name": "clock",
        "tool_call_id": second["id"],
    }
    assert weather["tool_call_id"] == first["id"]


def answered(updates: Sequence[Update], end: End) -> list[Any]:
    writer = AnswerWriter("m", time.perf_counter(), chat_answer, lambda found: [])
    return [line for piece in updates for line in writer.add(piece)] + list(writer.end(end))


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


def test_texts_that_are_here_together_are_one_line() -> None:
    texts = [f"{i} " for i in range(150)]
    waiting = [Update(0, (Text(text),)) for text in texts]
    writer = AnswerWriter(
        "m", time.perf_counter(), chat_answer, lambda found: [], has_next=lambda: bool(waiting)
    )
    made = []
    while waiting:
        made += writer.add(waiting.pop(0))
    found = [strict(encode(line))["message"]["content"] for line in made]
    assert [len(text.split()) for text in found] == [MOST_TOGETHER, MOST_TOGETHER, 22]
    assert "".join(found) == "".join(texts)


def test_a_text_that_the_end_follows_is_written_before_it() -> None:
    writer = AnswerWriter(
        "m", time.perf_counter(), chat_answer, lambda found: [], has_next=lambda: True
    )
    assert list(writer.add(Update(0, (Reasoning("Hm."), Text("Yes"))))) == []
    found = [strict(encode(line)) for line in writer.end(End(0, "stop", Timings()))]
    assert [line["done"] for line in found] == [False, True]
    assert found[0]["message"] == {"role": "assistant", "content": "Yes", "thinking": "Hm."}


class Ready:
    """A response whose events are here."""

    async def by(self, writer: AnswerWriter) -> AsyncGenerator[Any, None]:
        """As that of Answers."""
        for line in answered(PIECES, End(0, "stop", Timings())):
            yield line


def test_the_last_line_has_a_write_of_its_own() -> None:
    async def written() -> list[bytes]:
        return [piece async for piece in written_lines(lambda _: None, Ready())]  # type: ignore[arg-type, return-value]

    *others, nothing, last = asyncio.run(written())
    assert not any(strict(line)["done"] for line in others)
    assert nothing == b""  # sends those that wait
    assert strict(last)["done"]


def test_vectors_are_the_models(client: TestClient, model: Model) -> None:
    texts = ["one", "two words"]
    answer = post(client, "/api/embed", model="demo", input=texts)
    assert np.allclose(answer["embeddings"], model.embed(texts), atol=1e-6)
    assert np.allclose(np.linalg.norm(answer["embeddings"], axis=1), 1, atol=1e-5)
    assert answer["prompt_eval_count"] > 2
    one = post(client, "/api/embed", model="demo", input="one", dimensions=8)
    assert np.shape(one["embeddings"]) == (1, 8)
    old = post(client, "/api/embeddings", model="demo", prompt="one")
    assert np.array_equal(np.array(old["embedding"], np.float32), model.embed(["one"])[0])
    assert "load_duration" in answer
    for path, body, key in (
        ("embed", {"input": []}, "embeddings"),
        ("embed", {"input": ""}, "embeddings"),
        ("embed", {}, "embeddings"),
        ("embeddings", {"prompt": ""}, "embedding"),
    ):
        assert post(client, f"/api/{path}", model="demo", **body)[key] == []


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"truncate": True}, ""),
        ({"truncate": False, "dimensions": 0, "keep_alive": "5m"}, ""),
        ({"dimensions": 100_000}, ""),
        ({"options": {}}, ""),
        ({"options": {"num_ctx": 256}}, ""),
        (
            {"options": {"num_ctx": 8192, "num_thread": 4, "temperature": 0.5, "mirostat": 2}},
            "options.num_thread, options.num_ctx, options.temperature, options.mirostat",
        ),
    ],
)
def test_parameters_of_vectors(client: TestClient, body: dict[str, Any], names: str) -> None:
    for path, what in (("embed", {"input": "one"}), ("embeddings", {"prompt": "one"})):
        dimensions = {"dimensions"} & body.keys()
        if path == "embeddings" and dimensions:
            continue
        response = client.post(f"/api/{path}", json={"model": "demo", **what, **body})
        assert response.status_code == 200, response.text
        assert response.headers.get("x-trinity-ignored", "") == names


def test_a_text_that_is_too_long_for_a_vector_is_cut(client: TestClient, model: Model) -> None:
    long = "war and peace " * 500
    (cut,) = post(client, "/api/embed", model="demo", input=[long])["embeddings"]
    with pytest.warns(RuntimeWarning, match="cut to 512 tokens"):
        assert np.allclose(cut, model.embed([long])[0], atol=1e-6)
    old = post(client, "/api/embeddings", model="demo", prompt=long)["embedding"]
    assert np.allclose(cut, old, atol=1e-6)
    for path, what in (("embed", {"input": [long]}), ("embeddings", {"prompt": long})):
        response = client.post(f"/api/{path}", json={"model": "demo", "truncate": False, **what})
        assert response.status_code == 400
        assert "512" in strict(response.text)["error"]


def test_errors_have_ollamas_form_everywhere(client: TestClient) -> None:
    for response in (
        client.post("/api/pull", json={"name": 1}),
        client.post("/api/nothing", json={}),
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
        raise ApiError(503, "the server is stopping")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_read", break_down)
        *_, last = lines(client, "/api/chat", **CHAT)
    assert last == {"error": "the server is stopping"}
