"""Every request of llama.cpp's tools/server/README.md, and the shape of its response.

Source: github.com/ggml-org/llama.cpp, commit 00dc8057ab28. What differs is in docs/serving_apis.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.server.asgi import events, strict
from tests.server.conftest import MakeApp
from trinity.model import Model

POEM = [
    {"role": "system", "content": "You are ChatGPT, an AI assistant."},
    {"role": "user", "content": "Write a limerick about python exceptions"},
]
SCHEMA = {"properties": {"name": {"enum": ["a", "b"]}}, "required": ["name"], "type": "object"}
NUMBER, TEXT, TRUTH = (int, float), str, bool
# The fields of an answer, with the types of their values; a list has one of its elements.
TIMINGS = dict.fromkeys(
    (
        "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
        "predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second",
    ),
    NUMBER,
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "n_predict": int, "seed": int, "temperature": NUMBER, "dynatemp_range": NUMBER,
    "dynatemp_exponent": NUMBER, "top_k": int, "top_p": NUMBER, "min_p": NUMBER,
    "xtc_probability": NUMBER, "xtc_threshold": NUMBER, "typical_p": NUMBER, "repeat_last_n": int,
    "repeat_penalty": NUMBER, "presence_penalty": NUMBER, "frequency_penalty": NUMBER,
    "dry_multiplier": NUMBER, "dry_base": NUMBER, "dry_allowed_length": int,
    "dry_penalty_last_n": int, "dry_sequence_breakers": [str], "mirostat": int,
    "mirostat_tau": NUMBER, "mirostat_eta": NUMBER, "stop": list, "max_tokens": int, "n_keep": int,
    "n_discard": int, "ignore_eos": bool, "n_probs": int, "min_keep": int, "samplers": [str],
    "stream": bool, "grammar": str, "timings_per_token": bool,
}  # fmt: skip
COMPLETION: dict[str, Any] = {
    "content": TEXT, "tokens": list, "stop": TRUTH, "generation_settings": SETTINGS, "model": TEXT,
    "prompt": TEXT, "stop_type": TEXT, "stopping_word": TEXT, "timings": TIMINGS, "index": int,
    "tokens_cached": int, "tokens_evaluated": int, "tokens_predicted": int, "truncated": TRUTH,
}  # fmt: skip
CHAT: dict[str, Any] = {
    "id": TEXT, "created": int, "model": TEXT, "object": TEXT, "timings": TIMINGS,
    "choices": [{"index": int, "finish_reason": TEXT, "message": {"role": TEXT, "content": TEXT}}],
    "usage": {"completion_tokens": int, "prompt_tokens": int, "total_tokens": int,
              "prompt_tokens_details": {"cached_tokens": int}},
}  # fmt: skip
RESPONSE: dict[str, Any] = {
    "id": TEXT,
    "object": TEXT,
    "output": [{"type": TEXT, "role": TEXT, "content": [{"type": TEXT, "text": TEXT}]}],
    "usage": {"input_tokens": int, "output_tokens": int},
}
EMBEDDINGS = {"object": TEXT, "model": TEXT, "data": [{"index": int, "embedding": [NUMBER]}],
              "usage": {"prompt_tokens": int, "total_tokens": int}}  # fmt: skip
PROPS: dict[str, Any] = {
    "default_generation_settings": {"id": int, "id_task": int, "n_ctx": int, "speculative": TRUTH,
                                    "is_processing": TRUTH, "params": SETTINGS},
    "total_slots": int, "model_path": TEXT, "chat_template": TEXT, "chat_template_caps": dict,
    "modalities": {"vision": TRUTH}, "media_marker": TEXT, "build_info": TEXT, "is_sleeping": TRUTH,
    "bos_token": TEXT, "eos_token": TEXT, "model_alias": TEXT,
}  # fmt: skip
MODELS = {"object": TEXT, "data": [{
    "id": TEXT, "object": TEXT, "created": int, "owned_by": TEXT, "status": {"value": TEXT},
    "architecture": {"input_modalities": [TEXT], "output_modalities": [TEXT]},
    "meta": {"n_vocab": int, "n_ctx_train": int, "n_embd": int},
}], "models": [{"name": TEXT, "model": TEXT, "capabilities": [TEXT]}]}  # fmt: skip
COUNT = {"object": TEXT, "input_tokens": int}
COMPLETE = {"prompt": "Building a website can be done in 10 simple steps:", "n_predict": 8}


def has_shape(value: Any, shape: Any, where: str = "") -> None:
    """Check that a value has the fields and types of a shape."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), where
        for name, part in shape.items():
            assert name in value, f"{where}.{name} is missing"
            has_shape(value[name], part, f"{where}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        assert value, f"{where} is empty"
        for one in value:
            has_shape(one, shape[0], f"{where}[]")
    else:
        assert isinstance(value, shape), (where, value)
        assert shape is bool or not isinstance(value, bool) or shape is dict, (where, value)


@pytest.fixture(scope="module")
def server(make: MakeApp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server that can save slots."""
    folder = Path(tmp_path_factory.mktemp("slots"))
    with TestClient(make(slot_save_path=str(folder)), base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "body", "shape"),
    [
        ("GET", "/health", None, {"status": TEXT}),
        ("GET", "/v1/health", None, {"status": TEXT}),
        ("POST", "/completion", COMPLETE, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "prompt": [12, 34, 56]}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "prompt": [12, 34, "string", 56, 78]}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "prompt": {"prompt_string": "string"}}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "prompt": ["string1", "string2"]}, [COMPLETION]),
        ("POST", "/completion",
         {**COMPLETE, "prompt": [[12, 34, "string", 56, 78], [12, 34, 56], "string",
                                 {"prompt_string": "string"}]}, [COMPLETION]),
        ("POST", "/completion", {**COMPLETE, "n_cmpl": 2}, [COMPLETION]),
        ("POST", "/completion", {**COMPLETE, "logit_bias": [[150, 1.0], [151, False],
                                                            ["Hello, World!", -0.5]]}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "logit_bias": {"150": 1, "Hello": -1}}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "json_schema": SCHEMA, "n_predict": 30}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "grammar": 'root ::= "a" | "b"'}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "n_predict": 0}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "temperature": -1, "n_probs": 3}, {
            "completion_probabilities": [{"id": int, "logprob": NUMBER, "token": TEXT,
                "bytes": list, "top_logprobs": [{"id": int, "logprob": NUMBER, "token": TEXT}]}]}),
        ("POST", "/completion", {**COMPLETE, "n_probs": 3, "post_sampling_probs": True}, {
            "completion_probabilities": [{"id": int, "prob": NUMBER, "token": TEXT,
                "bytes": list, "top_probs": [{"id": int, "prob": NUMBER, "token": TEXT}]}]}),
        ("POST", "/completion",
         {**COMPLETE, "response_fields": ["content", "generation_settings/n_predict"]},
         {"content": TEXT, "generation_settings/n_predict": int}),
        ("POST", "/completion", {**COMPLETE, "samplers": [
            "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]}, COMPLETION),
        ("POST", "/completion", {**COMPLETE, "sse_ping_interval": -1, "return_tokens": True,
                                 "t_max_predict_ms": 0, "id_slot": -1}, {"tokens": [int]}),
        ("POST", "/tokenize", {"content": "Hello world!"}, {"tokens": [int]}),
        ("POST", "/tokenize", {"content": "Hello", "add_special": True, "with_pieces": True},
         {"tokens": [{"id": int, "piece": (str, list)}]}),
        ("POST", "/detokenize", {"tokens": [123, 456]}, {"content": TEXT}),
        ("POST", "/apply-template", {"messages": POEM}, {"prompt": TEXT}),
        ("POST", "/embedding", {"content": "Hello"}, [{"index": int, "embedding": [[NUMBER]]}]),
        ("POST", "/embeddings", {"input": ["hello", "world"], "model": "GPT-4",
                                 "encoding_format": "float"},
         [{"index": int, "embedding": [[NUMBER]]}]),
        ("GET", "/props", None, PROPS),
        ("GET", "/slots", None, [{"id": int, "id_task": int, "n_ctx": int, "speculative": TRUTH,
                                  "is_processing": TRUTH}]),
        ("GET", "/slots?fail_on_no_slot=1", None, [{"id": int}]),
        ("POST", "/slots/0?action=erase", None, {"id_slot": int, "n_erased": int}),
        ("GET", "/v1/models", None, MODELS), ("GET", "/models", None, MODELS),
        ("POST", "/models/load", {"model": "demo"}, {"success": TRUTH}),
        ("POST", "/v1/completions", {"model": "davinci-002", "prompt":
            "I believe the meaning of life is", "max_tokens": 8},
         {"choices": [{"text": TEXT, "index": int, "finish_reason": TEXT}], "usage": dict}),
        ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 4, "mirostat": 2},
         {"choices": [{"text": TEXT}]}),
        ("POST", "/v1/chat/completions", {"model": "gpt-3.5-turbo", "messages": POEM,
                                          "max_tokens": 8}, CHAT),
        ("POST", "/v1/chat/completions", {"messages": POEM, "max_tokens": 40,
            "response_format": {"type": "json_object"}, "stop": ["}"]}, CHAT),
        ("POST", "/v1/chat/completions", {"messages": POEM, "max_tokens": 40, "response_format":
            {"type": "json_object", "schema": {"type": "string", "maxLength": 10}}}, CHAT),
        ("POST", "/v1/chat/completions", {"messages": POEM, "max_tokens": 40, "response_format":
            {"type": "json_schema", "schema": SCHEMA}}, CHAT),
        ("POST", "/v1/chat/completions", {"messages": POEM, "max_tokens": 4, "reasoning_format":
            "none", "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "none",
            "reasoning_control": False, "parallel_tool_calls": True}, CHAT),
        ("POST", "/v1/chat/completions/control", {"id": "chatcmpl-1", "action": "reasoning_end",
            "model": "demo"}, {"success": TRUTH, "message": TEXT}),
        ("POST", "/v1/chat/completions/input_tokens", {"messages": POEM}, COUNT),
        ("POST", "/v1/responses", {"model": "gpt-4.1", "instructions": POEM[0]["content"],
                                   "input": POEM[1]["content"], "max_output_tokens": 8}, RESPONSE),
        ("POST", "/v1/responses/input_tokens", {"input": "Hello"}, COUNT),
        ("POST", "/v1/embeddings", {"input": "hello", "model": "GPT-4",
                                    "encoding_format": "float"}, EMBEDDINGS),
        ("POST", "/v1/embeddings", {"input": ["hello", "world"], "model": "GPT-4"}, EMBEDDINGS),
        ("POST", "/v1/embeddings", {"input": [{"content": [{"type": "text", "text": "hello"}]}]},
         EMBEDDINGS),
        ("POST", "/v1/messages", {"model": "gpt-4", "max_tokens": 8, "system":
            "You are a helpful assistant.", "messages": [{"role": "user", "content": "Hello!"}]},
         {"id": TEXT, "role": TEXT, "content": [{"type": TEXT, "text": TEXT}], "usage": dict}),
        ("POST", "/v1/messages", {"model": "gpt-4", "stop_sequences": ["e", "a"], "messages":
            [{"role": "user", "content": "Hello!"}]}, {"content": list, "usage": dict}),
        ("GET", "/props?model=demo", None, PROPS),
        ("POST", "/v1/messages/count_tokens", {"model": "gpt-4", "messages":
            [{"role": "user", "content": "Hello!"}]}, {"input_tokens": int}),
        ("GET", "/lora-adapters", None, list), ("POST", "/lora-adapters", [], {"success": TRUTH}),
    ],
)  # fmt: skip
def test_requests_of_the_document(
    server: TestClient, method: str, path: str, body: Any, shape: Any
) -> None:
    response = server.request(method, path, json=body)
    assert response.status_code == 200, response.text
    has_shape(strict(response.text), shape)


def test_slots_are_saved_and_restored(server: TestClient) -> None:
    server.post("/completion", json={**COMPLETE, "id_slot": 0})
    name = {"filename": "slot_save_file.bin"}
    saved = server.post("/slots/0?action=save", json=name).json()
    has_shape(saved, {"id_slot": int, "filename": TEXT, "n_saved": int, "n_written": int,
                      "timings": {"save_ms": NUMBER}})  # fmt: skip
    restored = server.post("/slots/0?action=restore", json=name).json()
    has_shape(restored, {"id_slot": int, "filename": TEXT, "n_restored": int, "n_read": int,
                         "timings": {"restore_ms": NUMBER}})  # fmt: skip
    assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"])


def test_a_stream_has_pieces_with_their_tokens(server: TestClient) -> None:
    found = events(server.post("/completion", json={**COMPLETE, "stream": True}).content)
    for one in found[:-1]:
        has_shape(one, {"content": TEXT, "tokens": [int], "stop": TRUTH})
    has_shape(found[-1], COMPLETION)
    body = {"messages": POEM, "max_tokens": 4, "stream": True, "return_progress": True}
    parts = [
        one["prompt_progress"]
        for one in events(server.post("/v1/chat/completions", json=body).content)
        if "prompt_progress" in one
    ]
    for one in parts:
        has_shape(one, dict.fromkeys(("total", "cache", "processed", "time_ms"), int))


@pytest.mark.parametrize("norm", [0, 1, 2, 3])
def test_vectors_have_the_norm_that_is_asked_for(
    server: TestClient, model: Model, norm: int
) -> None:
    body = {"content": "Hello", "embd_normalize": norm}
    (found,) = server.post("/embedding", json=body).json()[0]["embedding"]
    if norm == 0:
        assert max(map(abs, found)) == pytest.approx(32760, rel=1e-5)
    else:
        assert sum(abs(x) ** norm for x in found) ** (1 / norm) == pytest.approx(1, rel=1e-5)
    plain = server.post("/v1/embeddings", json={"input": "Hello"}).json()["data"][0]["embedding"]
    length = math.hypot(*found)
    assert [x / length for x in found] == pytest.approx(plain, abs=1e-5)


def test_raw_vectors(server: TestClient, model: Model) -> None:
    response = server.post("/embedding", json={"content": "Hello", "embd_normalize": -1})
    raw = model.embed(["Hello"], normalize=False)
    assert np.array_equal(np.array(response.json()[0]["embedding"], np.float32), raw)


def test_a_model_is_unloaded_and_loaded(server: TestClient, model: Model) -> None:
    assert server.post("/models/load", json={"model": "nope"}).status_code == 404
    assert server.post("/models/unload", json={"model": "nope"}).status_code == 404


def test_the_figures_of_the_document(server: TestClient) -> None:
    text = server.get("/metrics").text
    for name in (
        "prompt_tokens_total", "prompt_seconds_total", "prompt_tokens_seconds",
        "tokens_predicted_total", "tokens_predicted_seconds_total", "predicted_tokens_seconds",
        "requests_processing", "requests_deferred", "n_tokens_max", "n_decode_total",
        "n_busy_slots_per_decode", "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total",
    ):  # fmt: skip
        assert f"\nllamacpp:{name} " in text, name


# What trinity does not have: these are the differences that docs/serving_apis.md lists.
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/props", {}, 405),
        ("POST", "/v1/systemone", {}, 404),
        ("GET", "/tools", None, 404),
        ("POST", "/models", {"model": "x"}, 405),
        ("DELETE", "/models?model=x", None, 405),
        ("POST", "/v1/embeddings", {"input": [{"content": [{"type": "image_url"}]}]}, 400),
    ],
)
def test_what_is_not_there(
    server: TestClient, method: str, path: str, body: Any, status: int
) -> None:
    assert server.request(method, path, json=body).status_code == status
