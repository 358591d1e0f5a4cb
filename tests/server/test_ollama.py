"""Ollama's API: lines and whole answers, options, models, and what has no effect."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import strict
from tests.server.conftest import wait_for
from trinity.conversation.parts import CallArguments, CallStart, Reasoning, Text
from trinity.model import Model
from trinity.runtime.generation import Timings
from trinity.server.app import make_app
from trinity.server.endpoints.ollama.answer import AnswerWriter, chat_answer, whole
from trinity.server.endpoints.ollama.generate import OllamaChatRequest, OllamaGenerateRequest
from trinity.server.endpoints.ollama.models import short_count
from trinity.server.endpoints.ollama.names import seconds_of
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob, End, Piece, TextJob
from trinity.server.models import Models, Served
from trinity.server.prepared import CHATML
from trinity.server.schemas import decoded, encode

HELLO = [{"role": "user", "content": "Who was Pierre?"}]
CHAT = {"model": "demo", "messages": HELLO, "options": {"temperature": 0, "num_predict": 8}}
DURATIONS = ("created_at", "total_duration", "load_duration", "prompt_eval_duration",
             "eval_duration")  # fmt: skip
ENDLESS = {"type": "string", "pattern": "a{2000}"}
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


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
@pytest.mark.parametrize("keep_alive", [0, "0", "0s", "0m"])
def test_a_model_is_unloaded_when_it_is_kept_for_no_time(path: str, keep_alive: Any) -> None:
    """`ollama stop` sends this; what comes next loads the model again."""
    loads: list[Model] = []

    def load() -> Model:
        loads.append(trinity.load(trinity.demo_model(), threads=1))
        return loads[-1]

    models = Models([Served("demo", "demo.gguf", load)])
    with TestClient(make_app(models), base_url="http://localhost") as client:
        wait_for(lambda: models.ready)
        answer = post(client, path, model="demo", keep_alive=keep_alive)
        assert (answer["done"], answer["done_reason"]) == (True, "unload")
        wait_for(lambda: not models.ready)
        assert strict(client.get("/api/ps").text) == {"models": []}
        # An answer that is under way is not cut off.
        asked = {"messages": HELLO} if path == "/api/chat" else {"prompt": "Who?"}
        body = {"model": "demo", "options": {"num_predict": 8}, **asked}
        *_, last = lines(client, path, **body, keep_alive=keep_alive)
        assert last["eval_count"] == 8
        wait_for(lambda: not models.ready)
        post(client, path, model="demo", keep_alive="5m")
        assert models.ready
    assert len(loads) == 3


def test_names_may_have_a_tag(client: TestClient) -> None:
    for name in ("demo:latest", "Demo", "DEMO:latest"):
        answer = post(client, "/api/chat", **{**CHAT, "model": name}, stream=False)
        assert answer["model"] == name


@pytest.mark.parametrize("path", ["chat", "generate", "embed", "embeddings", "show"])
def test_an_unknown_model_is_not_found_in_ollamas_words(client: TestClient, path: str) -> None:
    body = {"messages": HELLO, "prompt": "a", "input": "a"}
    response = client.post(f"/api/{path}", json={"model": "nope:7b", **body})
    assert (response.status_code, strict(response.text)) == (
        404, {"error": "model 'nope:7b' not found"},
    )  # fmt: skip
    response = client.post(f"/api/{path}", json=body)
    assert (response.status_code, strict(response.text)) == (400, {"error": "model is required"})


@pytest.mark.parametrize("path", ["chat", "generate", "embed", "embeddings", "show"])
def test_the_older_name_of_the_model_parameter(client: TestClient, path: str) -> None:
    assert client.post(f"/api/{path}", json={"name": "demo"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"options": {"num_ctx": 100_000}}, "options.num_ctx"),
        ({"options": {"num_ctx": 64, "num_gpu": 0, "typical_p": 1.0, "use_mmap": True}}, ""),
        ({"options": {"num_gpu": 99, "num_thread": 2, "num_batch": 512, "f16_kv": True}},
         "options.num_gpu, options.num_thread, options.num_batch, options.f16_kv"),
        ({"options": {"mirostat": 1, "mirostat_tau": 5.0, "mirostat_eta": 0.1}},
         "options.mirostat, options.mirostat_tau, options.mirostat_eta"),
        ({"options": {"typical_p": 0.7, "use_mlock": True, "embedding_only": True}},
         "options.typical_p, options.use_mlock, options.embedding_only"),
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
        ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "images"),
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


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"raw": True, "system": "a"}, "raw mode does not support template, system, or context"),
        ({"suffix": "b"}, '"demo" does not support insert'),
        ({"template": "{{ .Nope"}, "template"),
        ({"images": ["aGk="]}, "images"),
        ({"context": [-1]}, "context[0]"),
        ({"context": [10**6]}, "token id"),
    ],
)
def test_refusals_of_generate(client: TestClient, body: dict[str, Any], word: str) -> None:
    response = client.post("/api/generate", json={"model": "demo", "prompt": "a", **body})
    assert response.status_code == 400, response.text
    assert word in strict(response.text)["error"]


def generated(client: TestClient, **body: Any) -> Any:
    options = {"temperature": 0, "num_predict": 8}
    return post(client, "/api/generate", model="demo", stream=False, options=options, **body)


def test_raw_takes_empty_texts(client: TestClient) -> None:
    raw = generated(client, prompt=PROMPT, raw=True)
    assert generated(client, prompt=PROMPT, raw=True, system="", template="", suffix="") == {
        **raw, **dict.fromkeys(DURATIONS, ANY),
    }  # fmt: skip
    assert "context" not in raw


def test_a_template_of_the_request(client: TestClient, model: Model) -> None:
    go = "{{ if .System }}S: {{ .System }}\n{{ end }}Q: {{ .Prompt }}\nA:"
    found = generated(client, prompt="Who?", system="Be short.", template=go)
    alone = model.generate("S: Be short.\nQ: Who?\nA:", temperature=0, max_tokens=8)
    assert found["response"] == alone.text
    assert found["prompt_eval_count"] == alone.prompt_tokens
    jinja = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    alone = model.generate("<Who?>", temperature=0, max_tokens=8)
    assert generated(client, prompt="Who?", template=jinja)["response"] == alone.text


def test_context_continues_a_conversation(client: TestClient, model: Model) -> None:
    first = generated(client, prompt="Who was Pierre?")
    ids = model.tokenize(PROMPT, parse_special=True)
    alone = model.generate(ids, temperature=0, max_tokens=8)
    assert first["context"] == [*ids, *alone.token_ids]
    *_, last = lines(client, "/api/generate", model="demo", prompt="Who was Pierre?",
                     options={"temperature": 0, "num_predict": 8})  # fmt: skip
    assert last["context"] == first["context"]
    second = generated(client, prompt="And Andrew?", context=first["context"])
    asked = "<|im_start|>user\nAnd Andrew?<|im_end|>\n<|im_start|>assistant\n"
    whole = [*first["context"], *model.tokenize(asked, add_bos=False, parse_special=True)]
    assert second["response"] == model.generate(whole, temperature=0, max_tokens=8).text
    assert second["context"][: len(whole)] == whole


def test_a_conversation_that_is_too_long_loses_its_oldest_messages(
    client: TestClient, model: Model
) -> None:
    system = {"role": "system", "content": "Be short."}
    turn = [{"role": "user", "content": "war " * 60}, {"role": "assistant", "content": "peace"}]
    history = [system, *turn * 20, *HELLO]
    response = client.post("/api/chat", json={**CHAT, "messages": history, "stream": False})
    answer = strict(response.text)
    starts = [i for i, one in enumerate(history) if one["role"] == "user"]
    counts = {
        i: len(model.apply_chat_template([system, *history[i:]], template=CHATML)) for i in starts
    }
    start = min(i for i, count in counts.items() if count <= 512 * 3 // 4)
    assert answer["prompt_eval_count"] == counts[start]
    assert response.headers["x-trinity-ignored"] == f"messages[1:{start}]"
    refused = client.post("/api/chat", json={**CHAT, "messages": history, "truncate": False})
    assert refused.status_code == 400
    assert "512" in strict(refused.text)["error"]


def test_a_text_that_is_too_long_loses_its_middle(client: TestClient, model: Model) -> None:
    """As in Ollama: num_keep tokens stay, and half of the context beyond them becomes free."""
    long = " ".join(f"word{i}" for i in range(600))
    options = {"num_predict": 4, "temperature": 0, "num_keep": 12}
    body = {"model": "demo", "prompt": long, "stream": False, "options": options}
    ids = model.tokenize(long)
    response = client.post("/api/generate", json={**body, "raw": True})
    answer = strict(response.text)
    kept = [*ids[:12], *ids[len(ids) - 250 :]]
    assert answer["prompt_eval_count"] == len(kept) == 262  # 512 - (512 - 12) / 2
    assert answer["response"] == model.generate(kept, temperature=0, max_tokens=4).text
    end = len(ids) - 250
    assert response.headers["x-trinity-ignored"] == f"prompt[tokens?12:{end}]"
    chat = strict(client.post("/api/generate", json=body).text)
    assert chat["prompt_eval_count"] in (262, 263)  # with a BOS token
    assert client.post("/api/generate", json={**body, "truncate": False}).status_code == 400


def test_shift_goes_on_when_the_context_is_full(client: TestClient) -> None:
    body = {**CHAT, "options": {"num_predict": 600, "temperature": 0, "stop": ["\0"]}}
    answer = post(client, "/api/chat", **body, stream=False, shift=True, format=ENDLESS)
    assert answer["eval_count"] == 600
    answer = post(client, "/api/chat", **body, stream=False, format=ENDLESS)
    assert answer["eval_count"] + answer["prompt_eval_count"] == 512


def test_what_took_no_step_has_no_speed(client: TestClient) -> None:
    """Programs divide counts by durations."""
    one = {"num_predict": 1, "temperature": 0}
    answer = post(client, "/api/chat", **{**CHAT, "options": one}, stream=False)
    assert answer["eval_count"] == 1
    assert "eval_duration" not in answer
    forced = {"type": "object", "properties": {"a": {"const": "war and peace " * 3}},
              "required": ["a"], "additionalProperties": False}  # fmt: skip
    body = {**CHAT, "options": {"num_predict": 60}, "format": forced}
    answer = post(client, "/api/chat", **body, stream=False)
    assert answer["eval_count"] > 10
    assert "eval_duration" not in answer


@pytest.fixture
def job_of(model: Model) -> Callable[..., Any]:
    """Makes the job of a request's body."""
    return lambda kind, **body: decoded(encode({"model": "demo", **body}), kind).job(model)


def test_options_are_the_engines(job_of: Callable[..., Any]) -> None:
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
    assert np.allclose(answer["embeddings"], model.embed(texts), atol=1e-6)
    assert np.allclose(np.linalg.norm(answer["embeddings"], axis=1), 1, atol=1e-5)
    assert answer["prompt_eval_count"] > 2
    one = post(client, "/api/embed", model="demo", input="one", dimensions=8)
    assert np.shape(one["embeddings"]) == (1, 8)
    old = post(client, "/api/embeddings", model="demo", prompt="one")
    assert np.array_equal(np.array(old["embedding"], np.float32), model.embed(["one"])[0])
    assert "load_duration" in answer
    for path, body, key in (
        ("embed", {"input": []}, "embeddings"), ("embed", {"input": ""}, "embeddings"),
        ("embed", {}, "embeddings"), ("embeddings", {"prompt": ""}, "embedding"),
    ):  # fmt: skip
        assert post(client, f"/api/{path}", model="demo", **body)[key] == []


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"truncate": True}, ""),
        ({"truncate": False, "dimensions": 0, "keep_alive": "5m"}, ""),
        ({"dimensions": 100_000}, ""),
        ({"options": {}}, ""),
        ({"options": {"num_ctx": 256}}, ""),
        ({"options": {"num_ctx": 8192, "num_thread": 4, "temperature": 0.5, "mirostat": 2}},
         "options.num_thread, options.mirostat, options.num_ctx, options.temperature"),
    ],
)  # fmt: skip
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
    assert found["model_info"]["tokenizer.ggml.tokens"] == []
    assert found["model_info"]["general.parameter_count"] > 1e6
    assert "completion" in found["capabilities"]
    verbose = post(client, "/api/show", model="demo", verbose=True)
    assert len(verbose["model_info"]["tokenizer.ggml.tokens"]) == model.config.vocab_size


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
        raise ApiError(503, "the server is being stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_read", break_down)
        *_, last = lines(client, "/api/chat", **CHAT)
    assert last == {"error": "the server is being stopped"}


def test_a_pull_of_a_served_model_succeeds(client: TestClient) -> None:
    *_, pulling, _, _, last = lines(client, "/api/pull", model="demo")
    assert last == {"status": "success"}
    assert pulling["completed"] == pulling["total"]
    assert post(client, "/api/pull", name="demo", stream=False) == {"status": "success"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "pull", {"model": "nope"}, 501, "model 'nope' not found"),
        ("POST", "push", {"model": "demo"}, 501, "uploads no models"),
        ("POST", "create", {"model": "mario", "from": "demo", "system": "S"}, 501, "creates no"),
        ("POST", "copy", {"source": "demo", "destination": "b"}, 501, "copies no models"),
        ("POST", "copy", {"source": "nope", "destination": "b"}, 404, "model 'nope' not found"),
        ("DELETE", "delete", {"model": "demo"}, 501, "deletes no models"),
        ("DELETE", "delete", {"model": "nope"}, 404, "model 'nope' not found"),
        ("HEAD", "blobs/sha256:00", None, 404, ""),
        ("POST", "blobs/sha256:00", None, 501, "takes no files"),
    ],
)
def test_what_the_server_does_not_manage_says_so(
    client: TestClient, method: str, path: str, body: Any, status: int, words: str
) -> None:
    response = client.request(method, f"/api/{path}", json=body)
    assert response.status_code == status
    if method != "HEAD":
        assert words in strict(response.text)["error"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(0, 0), ("0", 0), (300, 300), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("100ms", 0.1),
     (-1, math.inf), ("-1m", math.inf), (None, None)],
)  # fmt: skip
def test_lengths_of_time(text: Any, seconds: float | None) -> None:
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("count", "text"), [(900, "900"), (5_300_000, "5.3M"), (7_615_000_000, "7.6B")]
)
def test_numbers_of_parameters(count: int, text: str) -> None:
    assert short_count(count) == text
