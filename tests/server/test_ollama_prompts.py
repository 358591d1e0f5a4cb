"""Prompts of Ollama's API: raw, by a template, continued, and too long."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.server.ollama_calls import CHAT, HELLO, PROMPT, lines, post
from trinity.model import Model
from trinity.server.prepared import CHATML

DURATIONS = ("created_at", "total_duration", "load_duration", "prompt_eval_duration",
             "eval_duration")  # fmt: skip
ENDLESS = {"type": "string", "pattern": "a{2000}"}


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"raw": True, "system": "a"}, "raw mode does not support template, system, or context"),
        ({"suffix": "b"}, '"demo" does not support insert'),
        ({"template": "{{ .Nope"}, "template"),
        ({"images": ["aGk="]}, "reads only text"),
        ({"images": ["aGk="], "raw": True}, "images need the chat template"),
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
        **raw,
        **dict.fromkeys(DURATIONS, ANY),
    }
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
    """As in Ollama: num_keep tokens stay, and half of the remaining context becomes free."""
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


def test_what_took_no_step_has_a_duration(client: TestClient) -> None:
    """ollama-ai-provider requires one; clients divide by it, so it is not a mere nanosecond."""

    def check_duration(answer: Any) -> None:
        evaluated = answer["prompt_eval_count"]
        share = answer["prompt_eval_duration"] // evaluated
        assert share <= answer["eval_duration"] <= answer["prompt_eval_duration"]

    one = {"num_predict": 1, "temperature": 0}
    answer = post(client, "/api/chat", **{**CHAT, "options": one}, stream=False)
    assert answer["eval_count"] == 1
    check_duration(answer)
    forced = {"type": "object", "properties": {"a": {"const": "war and peace " * 3}},
              "required": ["a"], "additionalProperties": False}  # fmt: skip
    body = {**CHAT, "options": {"num_predict": 60}, "format": forced}
    answer = post(client, "/api/chat", **body, stream=False)
    assert answer["eval_count"] > 10
    check_duration(answer)


def test_an_assistants_last_message_is_continued(client: TestClient, model: Model) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "Pierre was a"}]
    answer = post(client, "/api/chat", **{**CHAT, "messages": begun}, stream=False)
    alone = model.generate(f"{PROMPT}Pierre was a", parse_special=True, temperature=0, max_tokens=8)
    assert answer["message"]["content"] == alone.text
    assert answer["prompt_eval_count"] == alone.prompt_tokens
