"""A client ends the reasoning of a running completion, as in llama.cpp's server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import trinity
from tests.conversation.test_prompt import tokenizer
from tests.server.conftest import LIMIT, socket_server
from tests.toy_model import FIRST_BYTE, VOCAB_SIZE, ids_of, toy_model
from trinity.conversation.dialects.dialect import TAGS
from trinity.conversation.prompt import ChatPrompt, form_of
from trinity.formats.defaults import ChatTemplate
from trinity.grammar.grammar import Grammar
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.reasoning_control import ControlledGuide, ReasoningControl
from trinity.server.served import Served
from trinity.tokenizers.vocabulary import CONTROL

THINKS = "{{ messages[0].content }}<think>\n"
CONTROL_PATH = "/v1/chat/completions/control"
LONG = {"ignore_eos": True, "temperature": 0.8, "seed": 3, "stream": True}


@pytest.fixture(scope="module")
def thinker() -> Iterator[Model]:
    with trinity.load(trinity.demo_model(), threads=1, batch_invariant=True) as model:
        model.use_chat_template(ChatTemplate(THINKS))
        yield model


@pytest.fixture(scope="module")
def client(thinker: Model) -> Iterator[httpx.Client]:
    app = make_app(Models([Served("demo", "demo.gguf", lambda: thinker, model=thinker)]))
    with socket_server(app) as url, httpx.Client(base_url=url, timeout=LIMIT) as client:
        yield client


def deltas(
    client: httpx.Client, end: bool, **fields: object
) -> tuple[str, str, list[dict[str, Any]]]:
    """Return reasoning and text of a stream, and what /control said at its first chunk."""
    body = {"messages": [{"role": "user", "content": "Prince Andrew"}], **LONG, **fields}
    reasoning, text, said = "", "", []
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            delta = chunk["choices"][0]["delta"]
            reasoning += delta.get("reasoning_content") or ""
            text += delta.get("content") or ""
            if end and not said:
                asked = {"id": chunk["id"], "action": "reasoning_end", "model": "demo"}
                said.append(httpx.post(client.base_url.join(CONTROL_PATH), json=asked).json())
    if end:
        said.append(client.post(CONTROL_PATH, json=asked).json())
    return reasoning, text, said


def test_reasoning_ends_and_the_answer_follows(client: httpx.Client) -> None:
    whole, nothing, _ = deltas(client, False)
    reasoning, text, said = deltas(client, True, reasoning_control=True)
    assert said == [
        {"success": True},
        {"success": False, "message": "no active completion for this id"},
    ]
    assert nothing == ""
    assert text
    assert len(reasoning) < len(whole)
    assert whole.startswith(reasoning.strip())


def test_the_response_is_the_same_unless_it_is_ended(client: httpx.Client) -> None:
    assert deltas(client, False, reasoning_control=True) == deltas(client, False)
    greedy = {"temperature": 0, "max_tokens": 20}
    assert deltas(client, False, reasoning_control=True, **greedy) == deltas(
        client, False, **greedy
    )


def test_a_budget_ends_with_a_message(client: httpx.Client, thinker: Model) -> None:
    whole, *_ = deltas(client, False)
    budget = {"reasoning_budget_tokens": 6, "max_tokens": 40}
    reasoning, text, _ = deltas(client, False, **budget, reasoning_budget_message=" Enough.")
    assert reasoning.endswith(" Enough.")
    assert whole.startswith(reasoning.removesuffix(" Enough."))
    assert len(thinker.tokenize(reasoning.removesuffix(" Enough."), add_bos=False)) == 6
    assert text
    plain, text, _ = deltas(client, False, **budget)
    assert plain == reasoning.removesuffix(" Enough.")
    assert text
    nothing, text, _ = deltas(client, False, **{**budget, "reasoning_budget_tokens": 0})
    assert len(thinker.tokenize(nothing, add_bos=False)) == 0
    assert text


def test_a_message_or_a_budget_that_is_not_possible(client: httpx.Client) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    body["reasoning_budget_message"] = "Enough."
    response = client.post("/v1/chat/completions", json=body)
    assert response.headers["x-trinity-ignored"] == "reasoning_budget_message"
    formed = {"thinking_budget": 5, "response_format": {"type": "json_object"}}
    response = client.post("/v1/chat/completions", json={**body, **formed})
    assert response.status_code == 400
    assert "is not a single token" in response.json()["error"]["message"]


def test_it_must_be_asked_for(client: httpx.Client) -> None:
    *_, said = deltas(client, True)
    assert said[0] == {
        "success": False,
        "message": "reasoning control not enabled for this completion",
    }
    for wrong in ({"id": "x"}, {"id": "", "action": "reasoning_end"}, {"id": "x", "action": "no"}):
        assert client.post(CONTROL_PATH, json=wrong).status_code == 400


def test_a_model_that_cannot_think_ignores_it(client: httpx.Client, thinker: Model) -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    body["chat_template"] = "{{ messages[0].content }}"
    response = client.post("/v1/chat/completions", json={**body, "reasoning_control": True})
    assert response.headers["x-trinity-ignored"] == "reasoning_control"


def guide(control: ReasoningControl, model: Model) -> ControlledGuide:
    return control.guide(model.tokenizer, VOCAB_SIZE)


def test_the_end_waits_for_the_end_of_a_character() -> None:
    model, _ = toy_model()
    form = form_of("", prompt="<think>\n")
    control = ReasoningControl(
        ChatPrompt([], "", form, True, model.tokenizer, lambda text: []), None
    )
    found = guide(control, model)
    assert control.possible
    first, second = (FIRST_BYTE + byte for byte in "é".encode())
    found.accept([*ids_of("so "), first])
    control.end()
    assert found.forced() == []
    found.accept([second])
    end = ids_of(TAGS.end)
    assert found.forced() == end
    found.accept(end)
    assert found.forced() == []
    control.end()
    assert found.forced() == []  # it reasons no longer
    found.accept(ids_of("and <think>again"))
    control.end()
    assert found.forced() == end
    assert found.allowed().all()


def test_a_grammar_continues_after_the_end() -> None:
    """The end of reasoning is one token there, and JSON of the schema follows."""
    vocabulary = tokenizer(CONTROL)
    prompt = ChatPrompt(
        [1], "", form_of("", prompt="<think>\n"), False, vocabulary, lambda text: []
    )
    inner = Grammar.lark(prompt.grammar('"yes"') or "")
    control = ReasoningControl(prompt, inner)
    found = control.guide(vocabulary, vocabulary.vocab_size)
    found.accept(vocabulary.encode("so", add_bos=False))
    control.end()
    (end,) = control.end_ids
    assert control.possible
    assert found.forced() == [end]
    found.accept([end])
    assert not found.complete
    assert not found.allowed()[vocabulary.encode("n", add_bos=False)[-1]]
    model, _ = toy_model()  # whose vocabulary has no such token
    spelled = ChatPrompt([], "", form_of(""), True, model.tokenizer, lambda text: [])
    assert not ReasoningControl(spelled, inner).possible
