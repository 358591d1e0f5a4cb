"""OpenAI's decisions: questions whose answers are probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import strict
from tests.server.conftest import LIMIT, socket_server
from trinity.formats.defaults import ChatTemplate
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.endpoints.decisions import (
    AT_ONCE,
    DecisionRequest,
    asked_of,
    jobs_of,
    label_of,
    labels_of,
)
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.models import Models
from trinity.server.prepared import PromptSettings, chat_prompt
from trinity.server.schemas import converted
from trinity.server.served import Served

TICKET = "I was charged twice."
CHOICE = {
    "type": "choice", "name": "kind", "instructions": "Classify the ticket.",
    "choices": [
        {"value": "billing", "description": "payments"}, {"value": True}, {"value": "true"},
    ],
}  # fmt: skip
PREDICATE = {"type": "predicate", "instructions": "Someone paid."}
SCORE = {
    "type": "score", "name": "anger", "instructions": "How angry is it?",
    "levels": [{"label": "calm"}, {"label": "angry", "description": "with curses"}],
}  # fmt: skip


def asked(ignored: Ignored | None = None, **body: Any) -> list[Any]:
    whole = {"input": TICKET, "questions": [PREDICATE], **body}
    return list(asked_of(ignored or Ignored(), converted(Ignored(), whole, DecisionRequest, "")))


def post(client: TestClient, status: int = 200, **body: Any) -> Any:
    whole = {"input": TICKET, "questions": [PREDICATE], **body}
    response = client.post("/v1/decisions", json=whole)
    assert response.status_code == status, response.text
    return strict(response.text)


def test_openais_client(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    questions: Any = [CHOICE, PREDICATE, SCORE]
    made = client.decisions.create(model="demo", input=TICKET, questions=questions)
    choice, predicate, score = made.answers
    assert (choice.type, choice.name) == ("choice", "kind")
    assert [one.value for one in choice.probabilities] == ["billing", True, "true"]
    most = max(choice.probabilities, key=lambda one: one.probability)
    assert (choice.choice, choice.confidence) == (most.value, most.probability)
    assert (predicate.type, predicate.name) == ("predicate", None)
    assert 0 < predicate.probability < 1
    assert (score.type, score.name) == ("score", "anger")
    assert [(one.value, one.label) for one in score.probabilities] == [(0, "calm"), (1, "angry")]
    assert score.score == pytest.approx(score.probabilities[1].probability)
    for answer in (choice, score):
        assert sum(one.probability for one in answer.probabilities) == pytest.approx(1)
    assert made.model == "demo"
    usage = made.usage
    assert usage.input_tokens == usage.total_tokens > 0
    assert usage.output_tokens == 0


def test_probabilities_are_the_models_own(client: TestClient, model: Model) -> None:
    ((labels, job),) = jobs_of(model, asked(questions=[CHOICE]))
    prompt = chat_prompt(Ignored(), model, job, PromptSettings({}))
    (first,) = model.generate(prompt.ids, max_tokens=1, logprobs=model.config.vocab_size).logprobs
    wanted = {token.token_id: math.exp(token.logprob) for token in first.top}
    sums = np.array([sum(wanted[token] for token in label.tokens) for label in labels])
    found = post(client, questions=[CHOICE])["answers"][0]["probabilities"]
    assert [one["probability"] for one in found] == pytest.approx(sums / sums.sum(), abs=1e-5)


def test_answers_are_in_the_order_of_their_questions(client: TestClient) -> None:
    questions = [
        {**PREDICATE, "name": f"{number}", "instructions": f"It is about {number}."}
        for number in range(2 * AT_ONCE + 3)
    ]
    answers = post(client, questions=questions)["answers"]
    assert [one["name"] for one in answers] == [one["name"] for one in questions]
    alone = [post(client, questions=[one])["answers"][0] for one in questions[:AT_ONCE:3]]
    assert alone == [
        pytest.approx(one) if isinstance(one, float) else one for one in answers[:AT_ONCE:3]
    ]


def test_what_the_model_reads(model: Model) -> None:
    (one,) = asked(questions=[CHOICE])
    ((labels, job),) = jobs_of(model, [one])
    assert [label.text for label in labels] == ["A", "B", "C"]
    assert [message["role"] for message in job.messages] == ["user", "assistant"]
    assert job.messages[0]["content"] == (
        "I was charged twice.\n\nQuestion:\nClassify the ticket.\nA: billing: payments\n"
        "B: true\nC: true\n"
        "Answer with the letter of one option only."
    )
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "a fox"}
    user = {"role": "user", "content": [{"type": "input_json", "data": {"a": [1]}}]}
    (one,) = asked(input=[user, call, output])
    ((labels, job),) = jobs_of(model, [one])
    assert [message["role"] for message in job.messages] == ["user", "assistant", "tool", "user",
                                                             "assistant"]  # fmt: skip
    assert job.messages[0]["content"] == '{"a": [1]}'
    assert "Someone paid." in job.messages[-2]["content"]
    parts = [{"type": "input_text", "text": "Is it"}, {"type": "input_json", "data": {"b": 2}}]
    (one,) = asked(questions=[{**PREDICATE, "instructions": parts}])
    assert one.content == 'Is it\n{"b": 2}'


def test_labels_are_tokens(model: Model) -> None:
    for text in ("A", "Q"):
        tokens = label_of(model, text).tokens
        assert {model.detokenize([token]).strip() for token in tokens} == {text}
    assert label_of(model, "no such token as this").tokens == frozenset()
    known = list(labels_of(model))
    assert [label.text for label in known[:26]] == list(ascii_uppercase)
    assert len(frozenset[int]().union(*(label.tokens for label in known))) >= len(known)
    (one,) = asked()
    too_many = replace(one, options=[str(number) for number in range(len(known) + 1)])
    with pytest.raises(ApiError, match=f"labels for {len(known)}"):
        jobs_of(model, [too_many])


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"questions": []}, "questions"),
        ({"questions": [{**CHOICE, "choices": CHOICE["choices"][:1]}]}, "questions[0].choices"),  # type: ignore[index]
        ({"questions": [{**CHOICE, "choices": [{"value": "a"}] * 2}]}, "questions[0].choices"),
        ({"questions": [{"type": "box", "instructions": "a"}]}, "questions[0]"),
        ({"questions": [{"type": "predicate"}]}, "questions[0].instructions"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
    ],
)
def test_what_is_refused(client: TestClient, body: dict[str, Any], where: str) -> None:
    error = post(client, 400, **body)["error"]
    assert (error["param"] or "").startswith(where), error


@pytest.mark.full
def test_another_model_may_come_between_the_questions() -> None:
    """Memory holds one of the two models."""

    def load() -> Model:
        return trinity.load(trinity.demo_model(), threads=1)

    both = [Served(name, "demo.gguf", load, lambda: 90) for name in ("demo", "other")]
    models = Models(both, memory_limit=150)
    questions = [{**PREDICATE, "instructions": f"It is about {i}."} for i in range(5 * AT_ONCE)]
    with socket_server(make_app(models)) as url, ThreadPoolExecutor(1) as asking:
        body = {"model": "demo", "input": TICKET, "questions": questions}
        made = asking.submit(httpx.post, f"{url}/v1/decisions", json=body, timeout=LIMIT)
        for _ in range(3):
            response = httpx.post(f"{url}/models/load", json={"model": "other"}, timeout=LIMIT)
            assert response.status_code == 200
        assert len(made.result().json()["answers"]) == len(questions)


@pytest.fixture
def thinker() -> Iterator[TestClient]:
    with trinity.load(trinity.demo_model(), threads=1) as model:
        model.use_chat_template(ChatTemplate("{{ messages[0].content }}<think>\n"))
        app = make_app(Models([Served("demo", "demo.gguf", lambda: model, model=model)]))
        with TestClient(app, base_url="http://localhost") as client:
            yield client


@pytest.mark.full
def test_a_model_that_always_reasons_first_is_refused(thinker: TestClient) -> None:
    assert "reasons first" in post(thinker, 400)["error"]["message"]
