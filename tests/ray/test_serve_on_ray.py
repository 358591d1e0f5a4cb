"""`trinity serve --ray` answers as one process does, and a lost replica changes no text."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.ray.running import HAS_RAY, Running, served
from trinity import Model, load
from trinity.loading import chat_model

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed (extra ray)"),
]
QUESTIONS = ("Who is Pierre?", "Who is Natasha?", "What did Prince Andrew say?", "Who is Kutuzov?")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with served(tmp_path_factory.mktemp("ray") / "log") as running:
        yield running


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with load(chat_model(), context_length=1024, threads=1) as loaded:
        yield loaded


def expected(model: Model, question: str, **options: Any) -> str:
    return model.chat([{"role": "user", "content": question}], **options).text


SAMPLED: dict[str, Any] = {"temperature": 0.9, "seed": 5, "max_tokens": 24}


def test_responses_are_those_of_one_process(server: Running, model: Model) -> None:
    for question in QUESTIONS[:2]:
        wanted = expected(model, question, **SAMPLED)
        assert server.streamed(question, **SAMPLED) == wanted
        messages = [{"role": "user", "content": question}]
        whole = server.post("/v1/chat/completions", messages=messages, n=2, **SAMPLED).json()
        assert whole["choices"][0]["message"]["content"] == wanted
        other = expected(model, question, **{**SAMPLED, "seed": SAMPLED["seed"] + 1})
        assert whole["choices"][1]["message"]["content"] == other
    found = server.post("/v1/embeddings", input=["Pierre", "Natasha"]).json()
    vectors = [one["embedding"] for one in found["data"]]
    np.testing.assert_allclose(vectors, model.embed(["Pierre", "Natasha"]), atol=1e-6)


def test_errors_are_those_of_one_process(server: Running) -> None:
    long = server.post("/v1/completions", prompt="Pierre " * 5000)
    assert long.status_code == 400
    assert "1024" in long.json()["error"]["message"]
    wrong = server.post("/v1/completions", prompt="x", max_tokens=-3)
    assert wrong.status_code == 400
    assert server.post("/v1/completions", prompt="x", model="no").status_code == 404
    bad = server.post("/v1/completions", prompt="x", logit_bias={"999999": 1})
    assert bad.status_code == 400


def test_a_client_that_leaves_ends_its_generation(server: Running) -> None:
    body = {"prompt": "Pierre", "stream": True, "max_tokens": 1000, "ignore_eos": True}
    with server.client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    limit = time.monotonic() + 20
    while running(server):
        assert time.monotonic() < limit
        time.sleep(0.05)


def running(server: Running) -> float:
    """Responses that the ingress waits for."""
    lines = server.client.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("trinity_running_answers")
    )


def test_killed_replicas_change_no_text(server: Running, model: Model) -> None:
    draw = random.Random(1)
    options = [{**SAMPLED, "max_tokens": 150, "seed": seed} for seed in range(4)]
    options[1]["temperature"] = 0
    options[2]["frequency_penalty"] = 0.5
    wanted = [expected(model, q, **o) for q, o in zip(QUESTIONS, options, strict=True)]
    for _ in range(2):
        victims = server.wait()
        with ThreadPoolExecutor(len(QUESTIONS)) as pool:
            found = [
                pool.submit(server.streamed, q, **o)
                for q, o in zip(QUESTIONS, options, strict=True)
            ]
            time.sleep(draw.uniform(0.05, 0.8))
            server.kill(draw.choice(victims))
            assert [one.result() for one in found] == wanted


def test_conversations_return_to_the_replica_that_knows_them(server: Running, model: Model) -> None:
    server.wait()
    talks: list[list[dict[str, str]]] = [[] for _ in range(6)]
    alone = routed = 0
    for turn in range(3):
        for number, talk in enumerate(talks):
            question = f"{QUESTIONS[turn]} This is question {number}, and it is not a short one."
            talk.append({"role": "user", "content": question})
            answer = model.chat(talk, temperature=0, max_tokens=16)
            body = {"messages": talk, "temperature": 0, "max_tokens": 16}
            reply = server.post("/v1/chat/completions", **body).json()
            text = reply["choices"][0]["message"]["content"]
            assert text == answer.text
            alone += answer.timings.cached_tokens
            routed += reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            talk.append({"role": "assistant", "content": text})
    assert routed >= 0.8 * alone
