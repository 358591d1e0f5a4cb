"""Fields of OpenAI's completions have an effect or are named as ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import events
from trinity.model import Model
from trinity.server.ignored import Ignored

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Who was Prince Andrew?"}]}
GREEDY = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}
HEADER = "x-trinity-ignored"
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip


def post(client: TestClient, path: str = CHAT, **body: Any) -> Any:
    start = HELLO if path == CHAT else {"prompt": "Prince Andrew"}
    response = client.post(path, json={**start, **GREEDY, **body})
    assert response.status_code == 200, response.text
    return response


def text_of(answer: Any) -> str:
    (choice,) = answer.json()["choices"]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def streamed(client: TestClient, path: str = CHAT, **body: Any) -> list[Any]:
    found = events(post(client, path, stream=True, **body).content)
    return [one for one in found if one != "[DONE]"]


# Fields of other servers, of OpenAI's own, and values that mean "not given".
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verbosity", "low"), ("store", True), ("service_tier", "flex"), ("best_of", 2),
        ("service_tier", "priority"), ("prompt_cache_retention", "24h"), ("moderation", {"a": 1}),
        ("prediction", {"type": "content", "content": "x"}), ("web_search_options", {}),
        ("documents", [{"title": "A", "text": "B"}]), ("top_a", 0.1),
        ("spaces_between_special_tokens", True),
        ("truncate_prompt_tokens", 100), ("guided_decoding_backend", "xgrammar"),
        ("options", {"num_ctx": 8192}), ("num_ctx", 8192), ("keep_alive", "5m"),
        ("provider", {"order": ["x"]}), ("plugins", []), ("usage", {"include": True}),
        ("client_metadata", {"a": "b"}), ("tfs_z", 0.9), ("metadata", {"a": 1}), ("user", 5),
        ("stream_options", {"include_usage": True}), ("reasoning_format", "deepseek-legacy"),
        ("chat_template_kwargs", {"no_such_name": 1}), ("enable_thinking", False),
        ("reasoning", {"effort": "none", "exclude": True}), ("extra_body", {"a": 1}),
    ],
)  # fmt: skip
def test_a_field_without_effect_is_named(client: TestClient, field: str, value: object) -> None:
    answer = post(client, **{field: value})
    assert field in answer.headers[HEADER]
    assert text_of(answer) == text_of(post(client))


@pytest.mark.parametrize(
    "body",
    [
        {"functions": None}, {"functions": []}, {"function_call": "none"}, {"tools": None},
        {"tools": []}, {"function_call": "auto"}, {"tool_choice": "auto"}, {"response_format": {}},
        {"tool_choice": "none"}, {"stop": []}, {"stop": ""}, {"stop": ["", None]},
        {"logit_bias": {}}, {"logit_bias": None}, {"stream_options": None}, {"top_logprobs": 0},
        {"n_cmpl": 1}, {"stop_token_ids": []}, {"min_tokens": 0}, {"skip_special_tokens": True},
        {"structured_outputs": {}}, {"guided_json": None}, {"reasoning_format": "none"},
        {"top_k": -1}, {"presence_penalty": 0}, {"bad_words": []}, {"allowed_token_ids": None},
        {"use_beam_search": False}, {"documents": []}, {"chat_template": None}, {"priority": 2**40},
    ],
)  # fmt: skip
def test_a_default_has_no_effect(client: TestClient, body: Any) -> None:
    answer = post(client, **body)
    assert HEADER not in answer.headers
    assert text_of(answer) == text_of(post(client))


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("field", "value"),
    [("allowed_token_ids", [5]), ("bad_words", ["the"]), ("use_beam_search", True)],
)
def test_what_would_silently_be_another_response_is_refused(
    client: TestClient, path: str, field: str, value: object
) -> None:
    start = HELLO if path == CHAT else {"prompt": "Prince Andrew"}
    response = client.post(path, json={**start, field: value})
    assert (response.status_code, response.json()["error"]["param"]) == (400, field)


def test_a_template_and_documents_of_the_request(client: TestClient) -> None:
    template = "{{ documents[0].text if documents else messages[0].content }}"
    plain = client.post(TEXT, json={"prompt": "Prince Andrew", **GREEDY}).json()
    for given in (
        {"chat_template": "{{ messages[0].content[-14:-1] }}"},
        {"chat_template": template, "documents": [{"text": "Prince Andrew"}]},
    ):
        answer = post(client, **given)
        assert HEADER not in answer.headers
        assert text_of(answer) == plain["choices"][0]["text"]
    response = client.post(CHAT, json={**HELLO, "chat_template": "{{ nope( }}"})
    assert response.status_code == 400
    assert "chat_template" in response.json()["error"]["message"]


def test_a_lone_message_of_the_assistant_is_refused(client: TestClient) -> None:
    response = client.post(CHAT, json={"messages": [{"role": "assistant", "content": "I am"}]})
    assert response.status_code == 400
    assert "there must be a message before it" in response.json()["error"]["message"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CHAT, "max_completion_tokens"),
        *((p, n) for p in (CHAT, TEXT) for n in ("max_tokens", "n_predict")),
    ],
)
def test_minus_one_is_no_limit(client: TestClient, model: Model, path: str, name: str) -> None:
    more: dict[str, Any] = {"max_tokens": None, name: -1}
    usage = post(client, path, **more).json()["usage"]
    assert usage["total_tokens"] == model.context_length


def test_top_p_0_takes_the_best_token(client: TestClient) -> None:
    more = {"temperature": 2, "top_p": 0, "top_k": -1, "min_p": 0, "seed": 5}
    assert text_of(post(client, **more)) == text_of(post(client))


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_usage_comes_with_every_chunk(client: TestClient, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *found, last = streamed(client, path, stream_options=options)
    whole = post(client, path).json()["usage"]
    counts = [one["usage"]["completion_tokens"] for one in found]
    assert counts == sorted(counts)
    assert counts[-1] == 6
    for one in (*found, last):
        usage = one["usage"]
        assert usage["prompt_tokens"] == whole["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert last["choices"] == []
    plain = streamed(client, path, stream_options={"continuous_usage_stats": True})
    assert all("usage" not in one for one in plain)  # as in vLLM


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_stop_token_ends_the_answer(client: TestClient, model: Model, path: str) -> None:
    tokens = 40
    whole = post(client, path, max_tokens=tokens)
    ids = model.tokenize(text_of(whole), add_bos=False)
    place = next(i for i in range(3, tokens) if ids[i] not in ids[:i])
    answer = post(client, path, max_tokens=tokens, stop_token_ids=[ids[place]])
    assert answer.json()["choices"][0]["finish_reason"] == "stop"
    assert text_of(answer) == model.detokenize(ids[:place])
    assert answer.json()["usage"]["completion_tokens"] == place
    more = post(
        client, path, max_tokens=tokens, stop_token_ids=[ids[place]], min_tokens=place + 1
    ).json()["usage"]["completion_tokens"]
    assert more > place


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_min_tokens_keeps_the_end_away(client: TestClient, model: Model, path: str) -> None:
    ends = {str(one): 100.0 for one in model.tokenizer.eog_ids}
    body: dict[str, Any] = {"ignore_eos": False, "logit_bias": ends, "max_tokens": 9}
    assert post(client, path, **body).json()["usage"]["completion_tokens"] == 0
    assert post(client, path, **body, min_tokens=5).json()["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_stop_string_may_stay(client: TestClient, path: str) -> None:
    text = text_of(post(client, path, max_tokens=20))
    stop = text[10:14]
    body: dict[str, Any] = {"max_tokens": 20, "stop": [stop]}
    assert text_of(post(client, path, **body)) == text[: text.index(stop)]
    kept = text[: text.index(stop) + len(stop)]
    body["include_stop_str_in_output"] = True
    assert text_of(post(client, path, **body)) == kept
    found = ""
    for one in streamed(client, path, **body):
        choice = one["choices"][0]
        found += (choice["delta"].get("content") if "delta" in choice else choice["text"]) or ""
    assert found == kept


def test_special_tokens_may_stay_in_the_text(client: TestClient, model: Model) -> None:
    end = min(model.tokenizer.eog_ids)
    bias = {str(end): 100.0}
    body: dict[str, Any] = {"logit_bias": bias, "max_tokens": 2}
    assert text_of(post(client, TEXT, **body)) == ""
    kept = text_of(post(client, TEXT, **body, skip_special_tokens=False))
    assert kept == model.tokenizer.token_text(end) * 2


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"response_format": {"json_schema": {"name": "a", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"response_format": {"schema": SCHEMA}},
        {"response_format": {"type": "json", "value": SCHEMA}},
        {"response_format": {"type": "json_object", "value": SCHEMA}},  # huggingface_hub's client
        {"json_schema": SCHEMA},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_every_form_of_a_schema_is_kept_to(client: TestClient, path: str, body: Any) -> None:
    found = json.loads(text_of(post(client, path, max_tokens=40, **body)))
    assert list(found) == ["a"]
    assert found["a"] in (1, 2)


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ({"guided_choice": ["left", "right"]}, ("left", "right")),
        ({"structured_outputs": {"choice": ["left", "right"]}}, ("left", "right")),
        ({"guided_regex": "x{3}y"}, ("xxxy",)),
        ({"structured_outputs": {"regex": "x{3}y"}}, ("xxxy",)),
        ({"guided_grammar": 'root ::= "up" | "down"'}, ("up", "down")),
        ({"guided_grammar": 'start: "up" | "down"'}, ("up", "down")),
        ({"structured_outputs": {"grammar": 'root ::= "up"'}}, ("up",)),
        ({"response_format": {"type": "regex", "pattern": "x{3}y"}}, ("xxxy",)),
        ({"response_format": {"type": "regex", "value": "x{3}y"}}, ("xxxy",)),
        ({"response_format": {"type": "grammar", "grammar": 'root ::= "up"'}}, ("up",)),
        ({"guided_choice": ["left"], "structured_outputs": {"choice": ["up"]}}, ("up",)),
    ],
)
def test_vllms_forms_are_kept_to(client: TestClient, body: Any, allowed: tuple[str, ...]) -> None:
    for path in (CHAT, TEXT):
        assert text_of(post(client, path, max_tokens=20, **body)) in allowed


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_regex": "("}, "structured_outputs"),
        ({"guided_json": {}, "json_schema": {}}, "structured_outputs"),
        ({"guided_json": {}, "response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "structural_tag"}}, "response_format.type"),
        ({"n": 2, "n_cmpl": 3}, "n_cmpl"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"logit_bias": [["x"]]}, "logit_bias[0]"),
        ({"reasoning_effort": 5, "temperature": "hot"}, "temperature"),
    ],
)
def test_what_cannot_be_kept_to_is_refused(client: TestClient, body: Any, param: str) -> None:
    response = client.post(CHAT, json={**HELLO, **body})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {}},
        {"type": "file", "file": {}},
    ],
)
def test_sound_and_files_are_refused(client: TestClient, part: Any) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}]
    response = client.post(CHAT, json={"messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[1].type"
    assert "not audio or files" in response.json()["error"]["message"]


def test_n_cmpl_is_n(client: TestClient) -> None:
    assert len(post(client, n_cmpl=2).json()["choices"]) == 2
    assert len(post(client, "/completion", prompt="a", n_cmpl=2).json()) == 2


def prompt_of(client: TestClient, messages: Any, **more: Any) -> str:
    response = client.post("/apply-template", json={"messages": messages, **more})
    assert response.status_code == 200, response.text
    return str(response.json()["prompt"])


USER = {"role": "user", "content": "What is the weather?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        # The message of an answer of OpenAI's as its clients send it back.
        ({"role": "assistant", "content": "Hi", "refusal": None, "annotations": [], "audio": None,
          "function_call": None, "tool_calls": None, "id": "msg_1", "reasoning": None,
          "reasoning_details": [], "weight": 1}, {"role": "assistant", "content": "Hi"}),
        ({"role": "assistant", "content": "Hi", "annotations": [{"type": "url_citation"}],
          "audio": {"id": "x"}}, {"role": "assistant", "content": "Hi"}),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]},
         {"role": "assistant", "content": "Hi"}),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]},
         {"role": "assistant", "content": "No"}),
        ({"role": "assistant", "content": ["Hi", {"type": "thinking", "thinking": "Hm"}]},
         {"role": "assistant", "content": "Hi"}),
        ({"role": "assistant", "content": None, "tool_calls": [
            {**CALL, "function": {"name": "f", "arguments": {"a": 1}}, "index": 0, "extra": 1}]},
         {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        ({"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
         {"role": "assistant", "content": None, "tool_calls": [
             {**CALL, "function": {"name": "f", "arguments": '{"input": "x"}'}}]}),
        ({"role": "assistant", "content": None, "function_call":
            {"name": "f", "arguments": '{"a": 1}'}},
         {"role": "assistant", "content": None, "tool_calls": [
             {"type": "function", "function": CALL["function"]}]}),
    ],
)  # fmt: skip
def test_messages_come_back_in_many_forms(client: TestClient, given: Any, plain: Any) -> None:
    after = {"role": "user", "content": "And now?"}
    assert prompt_of(client, [USER, given, after]) == prompt_of(client, [USER, plain, after])


def test_reasoning_is_another_name(client: TestClient) -> None:
    from trinity.server.endpoints.messages import Message

    for name in ("reasoning", "reasoning_content"):
        message = Message("assistant", "Hi", **{name: "Hm"})
        found = message.as_template_has_it(Ignored(), "messages[0]")
        assert found["reasoning_content"] == "Hm"


# Names that programs have built in, of OpenAI's, Anthropic's and Google's models.
@pytest.mark.parametrize(
    "name",
    ["gpt-3.5-turbo", "gpt-4o-mini", "gpt-4.1", "gpt-5", "o3", "o4-mini", "davinci-002", "default",
     "text-embedding-3-small", "claude-sonnet-4-5", "gemini-2.0-flash", "GPT-4", "LLaMA_CPP",
     "openai/gpt-4o", "dummy", "tgi", "some-model"],
)  # fmt: skip
def test_a_vendors_model_is_the_only_model(client: TestClient, name: str) -> None:
    answer = post(client, model=name)
    assert (answer.json()["model"], answer.headers[HEADER]) == ("demo", "model")


@pytest.mark.parametrize("name", ["nope", "gpt", "llama3.2", "o2", "gpt2", "qwen3"])
def test_another_unknown_model_is_not_found(client: TestClient, name: str) -> None:
    assert client.post(CHAT, json={**HELLO, "model": name}).status_code == 404
