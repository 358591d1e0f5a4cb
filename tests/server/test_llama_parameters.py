"""Parameters of llama.cpp's clients have an effect or are refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import events, strict
from tests.server.conftest import MakeApp
from trinity.model import Model
from trinity.runtime.options import Request
from trinity.server.app import make_app
from trinity.server.endpoints.chat_request import ChatRequest
from trinity.server.endpoints.completions import CompletionRequest
from trinity.server.endpoints.llama_completion import LlamaRequest
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.models import Models
from trinity.server.schemas import decoder
from trinity.server.served import Served

CHAT, TEXT, LLAMA = "/v1/chat/completions", "/v1/completions", "/completion"
HELLO = [{"role": "user", "content": "Who was Prince Andrew?"}]
PATHS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    TEXT: {"prompt": "Prince Andrew"},
    LLAMA: {"prompt": "Prince Andrew"},
}
GREEDY = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


def post(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json={**PATHS[path], **GREEDY, **body})
    assert response.status_code == 200, response.text
    return strict(response.text)


def streamed(client: TestClient, path: str, **body: Any) -> list[Any]:
    response = client.post(path, json={**PATHS[path], **GREEDY, "stream": True, **body})
    assert response.status_code == 200, response.text
    return [one for one in events(response.content) if one != "[DONE]"]


def refused(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json={**PATHS[path], **GREEDY, **body})
    assert response.status_code == 400, response.text
    return strict(response.text)["error"]


@pytest.fixture(scope="module")
def two() -> Iterator[TestClient]:
    """A server whose model runs two requests at the same time."""
    path = trinity.demo_model()
    with trinity.load(path, threads=1, max_sequences=2) as model:
        served = Served("demo", path, lambda: model, model=model)
        with TestClient(make_app(Models([served])), base_url="http://localhost") as client:
            yield client


@pytest.fixture(scope="module")
def strict_client(make: MakeApp) -> Iterator[TestClient]:
    """A server that refuses fields without an effect."""
    with TestClient(make(strict=True), base_url="http://localhost") as client:
        yield client


# What clients send that list all parameters with llama.cpp's own defaults.
DEFAULTS = {
    "n_keep": 0, "n_discard": 0, "n_indent": 0, "n_cache_reuse": 0, "t_max_predict_ms": -1,
    "min_keep": 0, "typical_p": 1.0, "top_n_sigma": -1, "xtc_probability": 0, "xtc_threshold": 0.1,
    "dynatemp_range": 0, "dynatemp_exponent": 1, "mirostat": 0, "mirostat_tau": 5,
    "mirostat_eta": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2,
    "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n", ":"], "adaptive_target": -1,
    "adaptive_decay": 0.9, "repeat_penalty": 1.0, "repeat_last_n": 64, "id_slot": -1,
    "backend_sampling": False, "timings_per_token": False, "return_progress": False,
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
                 "temperature"],
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_all_parameters_with_their_defaults_change_nothing(path: str, client: TestClient) -> None:
    def told(answer: Any) -> Any:
        return answer["content"] if path == LLAMA else answer["choices"]

    assert told(post(client, path, **DEFAULTS)) == told(post(client, path))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_keep", 2), ("n_indent", 4), ("t_max_predict_ms", 100), ("n_cache_reuse", 256),
        ("samplers", ["infill"]), ("samplers", "ki"), ("return_progress", True),
    ],
)  # fmt: skip
def test_what_is_not_there_is_ignored_by_name(
    path: str, name: str, value: object, client: TestClient, strict_client: TestClient
) -> None:
    body = {**PATHS[path], **GREEDY, name: value}
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["x-trinity-ignored"].startswith(name)
    refusal = strict_client.post(path, json=body)
    assert refusal.status_code == 400
    assert refusal.json()["error"]["param"].startswith(name)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", ["\\n", "[1]", '{"a": 1}', '["a"', "x" * 70_000])
def test_breakers_in_a_text_must_be_a_list(path: str, text: str, client: TestClient) -> None:
    assert refused(client, path, dry_sequence_breakers=text)["param"] == "dry_sequence_breakers"


@pytest.mark.parametrize("path", PATHS)
def test_a_slot_has_a_number(path: str, client: TestClient) -> None:
    assert refused(client, path, id_slot=-2)["param"] == "id_slot"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"repeat_penalty": 1.5, "repeat_last_n": 9},
         {"repetition_penalty": 1.5, "penalty_last_n": 9}),
        ({"samplers": ["top_k", "temperature"], "top_k": 5, "top_p": 0.5, "temperature": 0.5},
         {"samplers": ["top_k", "temperature"], "top_k": 5, "top_p": 0.5, "temperature": 0.5}),
        ({"samplers": ["top-k", "infill", "typical_p", "temp"]},
         {"samplers": ["top_k", "typ_p", "temperature"]}),
        ({"samplers": "kst"}, {"samplers": ["top_k", "top_n_sigma", "temperature"]}),
        ({"samplers": []}, {"samplers": []}),
        ({"typical_p": 3, "top_n_sigma": -7, "dynatemp_range": -1, "adaptive_target": -9},
         {"typical_p": 1.0, "top_n_sigma": -1.0, "dynatemp_range": 0.0, "adaptive_target": -1.0}),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.2, "mirostat": 2, "mirostat_tau": 4,
          "mirostat_eta": 0.2, "dry_multiplier": 0.8, "dry_allowed_length": 3,
          "dry_penalty_last_n": -1, "dry_sequence_breakers": [".", "\n"]},
         {"xtc_probability": 0.5, "xtc_threshold": 0.2, "mirostat": 2, "mirostat_tau": 4.0,
          "mirostat_eta": 0.2, "dry_multiplier": 0.8, "dry_allowed_length": 3,
          "dry_penalty_last_n": -1, "dry_sequence_breakers": [".", "\n"]}),
        ({"dry_sequence_breakers": '["\\n", ":", "\\"", "*"]'},
         {"dry_sequence_breakers": ["\n", ":", '"', "*"]}),
        ({"dry_sequence_breakers": '"\\n", ":"'}, {"dry_sequence_breakers": ["\n", ":"]}),
        ({"dry_sequence_breakers": ""}, {"dry_sequence_breakers": []}),
        ({"n_predict": 7}, {"max_tokens": 7}),
        ({"lora": [{"id": 0, "scale": 0.5}]}, {"lora": {0: 0.5}}),
        ({"return_progress": True, "stream": True}, {"progress": True}),
        ({"timings_per_token": True, "stream": True}, {"progress": True}),
    ],
)  # fmt: skip
def test_they_become_options_of_the_engine(body: Any, expected: dict[str, Any]) -> None:
    text = {"prompt": "x", **body}
    options: list[Any] = [
        decoder(LlamaRequest).decode(encoded(text)).options(Ignored()),
        decoder(CompletionRequest).decode(encoded(text)).job(Ignored(), whole=False).options,
        chat_options({"messages": HELLO, **body}),
    ]
    for found in options:
        Request.of(**found)
        assert {name: found[name] for name in expected} == expected


def chat_options(body: object) -> Any:
    request = decoder(ChatRequest).decode(encoded(body))
    return request.job(Ignored(), request.box(Ignored()), whole=False).options


def encoded(body: object) -> bytes:
    from trinity.server.schemas import encode

    return encode(body)


def test_two_names_of_one_thing_must_agree() -> None:
    for body in ({"n_predict": 3, "max_tokens": 4}, {"repeat_penalty": 2, "repetition_penalty": 3}):
        with pytest.raises(ApiError):
            decoder(CompletionRequest).decode(encoded({"prompt": "x", **body})).job(
                Ignored(), whole=True
            )
    request = decoder(ChatRequest).decode(
        encoded({"messages": HELLO, "n_predict": 3, "max_completion_tokens": 4})
    )
    with pytest.raises(ApiError):
        request.job(Ignored(), request.box(Ignored()), whole=True)


@pytest.mark.parametrize("path", PATHS)
def test_a_slot_must_be_there(path: str, two: TestClient, client: TestClient) -> None:
    post(two, path, id_slot=1)
    error = refused(two, path, id_slot=2)
    assert (error["param"], "2 slots" in error["message"]) == ("id_slot", True)
    post(client, path, id_slot=99)  # where nothing limits their number


def test_slots_are_those_that_may_run(two: TestClient) -> None:
    slots = two.get("/slots").json()
    assert [one["id"] for one in slots] == [0, 1]
    assert not any(one["is_processing"] for one in slots)
    assert two.get("/props").json()["total_slots"] == 2


@pytest.mark.parametrize("path", PATHS)
def test_progress_comes_before_the_answer(path: str, client: TestClient) -> None:
    found = streamed(client, path, return_progress=True, cache_prompt=False)
    told = [one["prompt_progress"] for one in found if "prompt_progress" in one]
    total = told[0]["total"]
    assert [one["processed"] for one in told] == [0, total]
    assert all((one["total"], one["cache"]) == (total, 0) for one in told)
    assert told[-1]["time_ms"] >= told[0]["time_ms"] == 0
    if path == CHAT:
        assert all(one["choices"][0]["delta"] == {} for one in found if "prompt_progress" in one)
    plain = streamed(client, path, cache_prompt=False)
    assert text_of(path, found) == text_of(path, plain)
    assert not any("prompt_progress" in one for one in plain)


def text_of(path: str, found: list[Any]) -> str:
    if path == LLAMA:
        return "".join(one["content"] for one in found)
    choices = [choice for one in found for choice in one["choices"]]
    return "".join(
        one["text"] if path == TEXT else one["delta"].get("content") or "" for one in choices
    )


@pytest.mark.parametrize("path", PATHS)
def test_timings_are_told_as_often_as_asked_for(path: str, client: TestClient) -> None:
    plain = streamed(client, path)
    assert [number for number, one in enumerate(plain) if "timings" in one] == [len(plain) - 1]
    found = streamed(client, path, timings_per_token=True)
    timings = [one["timings"] for one in found if "timings" in one]
    assert len(timings) >= len(found) - (path == CHAT)  # the first chunk has the role alone
    counts = [one["predicted_n"] for one in timings]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 6)
    assert timings[0]["predicted_ms"] == 0
    assert post(client, path)["timings"]["predicted_n"] == 6


def test_usage_has_timings_of_one_answer(client: TestClient) -> None:
    usage = {"stream_options": {"include_usage": True}}
    for path in (CHAT, TEXT):
        assert streamed(client, path, **usage)[-1]["timings"]["predicted_n"] == 6
        assert "timings" not in streamed(client, path, **usage, n=2)[-1]
        assert "timings" not in post(client, path, n=2)


def test_verbose_says_how_the_model_reads_it(client: TestClient, model: Model) -> None:
    prompt = f"<|im_start|>user\n{HELLO[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    answer = post(client, CHAT, verbose=True)
    told = answer["__verbose"]
    ids = model.tokenize(prompt, parse_special=True)
    assert told["prompt"] == model.tokenizer.whole_text(ids)
    assert told["content"] == answer["choices"][0]["message"]["content"]
    assert len(told["tokens"]) == told["tokens_predicted"] == 6
    assert told["generation_settings"]["temperature"] == 0
    assert not told["generation_settings"]["stream"]
    assert "__verbose" not in post(client, CHAT)
    last = streamed(client, CHAT, verbose=True)[-1]
    assert last["__verbose"]["prompt"] == told["prompt"]
    assert last["__verbose"]["content"] == told["content"]
    assert last["__verbose"]["generation_settings"]["stream"]


def test_generation_settings_have_the_grammar_and_what_the_stream_has(client: TestClient) -> None:
    grammar = 'root ::= "Yes" | "No"'
    told = post(client, LLAMA, grammar=grammar, timings_per_token=True)["generation_settings"]
    assert (told["grammar"], told["stream"], told["timings_per_token"]) == (grammar, False, True)
    told = streamed(client, LLAMA)[-1]["generation_settings"]
    assert (told["grammar"], told["stream"], told["timings_per_token"]) == ("", True, False)
    told = client.get("/props").json()["default_generation_settings"]["params"]
    assert (told["grammar"], told["stream"]) == ("", True)  # as llama-server has it


def test_verbose_may_be_the_servers_own_choice(make: Any) -> None:
    with TestClient(make(verbose_answers=True), base_url="http://localhost") as client:
        assert "__verbose" in post(client, CHAT)
        assert "__verbose" not in post(client, CHAT, verbose=False)


def test_probabilities_of_the_draw(client: TestClient) -> None:
    body = {"temperature": 1.0, "seed": 3, "n_probs": 5, "top_k": 8, "top_p": 1.0, "min_p": 0.0}
    drawn = post(client, LLAMA, **body, post_sampling_probs=True)
    own = post(client, LLAMA, **body)
    assert drawn["content"] == own["content"]
    for one, plain in zip(
        drawn["completion_probabilities"], own["completion_probabilities"], strict=True
    ):
        assert one["id"] == plain["id"]
        tops = [top["prob"] for top in one["top_probs"]]
        assert tops == sorted(tops, reverse=True)
        assert 0 < one["prob"] <= 1
        assert sum(tops) <= 1 + 1e-9
        # Of 8 tokens alone, so each is more probable than among all.
        for top, other in zip(one["top_probs"], plain["top_logprobs"], strict=True):
            assert top["id"] == other["id"]
            assert top["prob"] > math.exp(other["logprob"]) * (1 - 1e-6)
    (greedy, *_) = post(client, LLAMA, n_probs=3, post_sampling_probs=True)[
        "completion_probabilities"
    ]
    assert (greedy["prob"], len(greedy["top_probs"])) == (1.0, 1)
    answer = client.post(LLAMA, json={"prompt": "a", "n_predict": 1, "post_sampling_probs": True})
    assert answer.status_code == 200
    assert answer.headers["X-Trinity-Ignored"] == "post_sampling_probs"


def test_special_tokens_of_a_prompt_are_such(client: TestClient, model: Model) -> None:
    prompt = "<|im_start|>user\nWho?<|im_end|>\n"
    answer = post(client, LLAMA, prompt=prompt)
    assert answer["tokens_evaluated"] == len(model.tokenize(prompt, parse_special=True))


def test_an_answer_goes_on_with_the_assistants_text(client: TestClient) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "He was"}]
    prompt = post(client, CHAT, verbose=True)["__verbose"]["prompt"]
    for more in (
        {},
        {"continue_final_message": True},
        {"continue_final_message": True, "add_generation_prompt": False},
    ):
        found = post(client, CHAT, messages=begun, verbose=True, **more)
        assert found["__verbose"]["prompt"] == prompt + "He was"
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "was"}]
    found = post(client, CHAT, messages=[*HELLO, {**begun[-1], "content": parts}], verbose=True)
    assert found["__verbose"]["prompt"] == prompt + "He\n\nwas"
    closed = prompt + "He was<|im_end|>\n"
    for more, end in (
        ({"continue_final_message": False}, "<|im_start|>assistant\n"),
        ({"add_generation_prompt": True}, "<|im_start|>assistant\n"),
        ({"add_generation_prompt": False}, ""),
    ):
        found = post(client, CHAT, messages=begun, verbose=True, **more)
        assert found["__verbose"]["prompt"] == closed + end


@pytest.mark.parametrize(
    ("messages", "more", "param"),
    [
        (HELLO, {"continue_final_message": True}, "continue_final_message"),
        (
            [*HELLO, {"role": "assistant", "content": "He"}],
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ([*HELLO, *[{"role": "assistant", "content": "He"}] * 2], {}, "messages[2]"),
    ],
)
def test_what_cannot_be_continued_is_refused(
    messages: Any, more: Any, param: str, client: TestClient
) -> None:
    assert refused(client, CHAT, messages=messages, **more)["param"] == param
