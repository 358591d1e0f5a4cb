"""Running a server: metrics that boards read, ids of requests, log lines."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.server.conftest import MakeApp
from trinity.server.logs import log_to
from trinity.server.security import REQUEST_ID

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
# What the expressions of vLLM's examples/observability/prometheus_grafana/grafana.json read.
VLLM_BOARD = [
    "e2e_request_latency_seconds_bucket",
    "e2e_request_latency_seconds_sum",
    "e2e_request_latency_seconds_count",
    "prompt_tokens_total",
    "generation_tokens_total",
    "inter_token_latency_seconds_bucket",
    "inter_token_latency_seconds_sum",
    "inter_token_latency_seconds_count",
    "num_requests_running",
    "num_requests_waiting",
    "time_to_first_token_seconds_bucket",
    "time_to_first_token_seconds_sum",
    "time_to_first_token_seconds_count",
    "kv_cache_usage_perc",
    "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket",
    "request_success_total",
    "request_queue_time_seconds_sum",
    "request_prefill_time_seconds_sum",
    "request_decode_time_seconds_sum",
    "request_max_num_generation_tokens_sum",
]
# And older versions of it.
OLDER = ["time_per_output_token_seconds_bucket", "gpu_cache_usage_perc"]
BODY = {"prompt": "Natasha and Pierre " * 4, "max_tokens": 6, "ignore_eos": True}


def samples(client: TestClient) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The labels and values of each metric."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_vllms_board_finds_its_metrics(make: MakeApp) -> None:
    with TestClient(make(), base_url="http://localhost") as client:
        answers = [client.post("/v1/completions", json=BODY).json() for _ in range(2)]
        found = samples(client)
    for name in (*VLLM_BOARD, *OLDER):
        assert all(
            labels["model_name"] == "demo" and labels["engine"] == "0"
            for labels, _ in found[f"vllm:{name}"]
        ), name
    usages = [answer["usage"] for answer in answers]
    for name, key in (("prompt", "prompt_tokens"), ("generation", "completion_tokens")):
        ((_, value),) = found[f"vllm:{name}_tokens_total"]
        assert value == sum(usage[key] for usage in usages)
    ((labels, value),) = found["vllm:request_success_total"]
    assert (labels["finished_reason"], value) == ("length", 2)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert found["vllm:prefix_cache_hits_total"][0][1] == cached > 0
    assert found["vllm:inter_token_latency_seconds_count"][0][1] == 2


def test_kv_cache_usage_counts_what_runs(make: MakeApp) -> None:
    with TestClient(make(), base_url="http://localhost") as client:
        client.post("/v1/completions", json=BODY)
        assert samples(client)["vllm:kv_cache_usage_perc"][0][1] == 0
        with client.stream(
            "POST", "/v1/completions", json={**BODY, "max_tokens": 300, "stream": True}
        ) as answer:
            next(answer.iter_lines())
            assert 0 <= samples(client)["vllm:kv_cache_usage_perc"][0][1] <= 1


def test_our_board_reads_existing_metrics(make: MakeApp) -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    with TestClient(make(), base_url="http://localhost") as client:
        client.post("/v1/completions", json=BODY)
        found = samples(client)
    read = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b(?:trinity_|vllm:|process_)\w+", target["expr"])
    }
    assert len(read) >= 10
    assert read <= found.keys()


def test_each_response_has_an_id(make: MakeApp) -> None:
    with TestClient(make(api_key=["key-of-the-tests"]), base_url="http://localhost") as client:
        ids = [
            client.get(path, headers=headers).headers["x-request-id"]
            for path in ("/health", "/nowhere", "/v1/models")
            for headers in ({}, {"x-request-id": "with space"}, {"x-request-id": "x" * 129})
        ]
        assert len(set(ids)) == 9
        assert all(re.fullmatch("req_[0-9a-f]{32}", one) for one in ids)
        for path in ("/health", "/nowhere", "/v1/completions"):
            given = client.get(path, headers={"x-request-id": "abc/1"})
            assert given.headers["x-request-id"] == "abc/1"
        assert "request-id" not in client.get("/health").headers


def test_official_clients_read_it(url: str) -> None:
    asked = openai.OpenAI(base_url=f"{url}/v1", api_key="none").chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "Hello"}], max_tokens=2,
        extra_headers={"X-Request-Id": "mine"},
    )  # fmt: skip
    assert asked._request_id == "mine"
    message = anthropic.Anthropic(base_url=url, api_key="none").messages.create(
        model="demo", messages=[{"role": "user", "content": "Hello"}], max_tokens=2
    )
    assert (message._request_id or "").startswith("req_")


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The server's logger, which is restored."""
    log = logging.getLogger("trinity.server")
    before = log.level, [*log.handlers], log.propagate
    yield log
    log.level, log.handlers, log.propagate = before


def test_json_log_lines(make: MakeApp, log: logging.Logger) -> None:
    lines: list[str] = []
    say = log_to(lines.append, requests=True, json=True)
    say('listening on "here"')
    app = make(log_requests=True)
    with TestClient(app, base_url="http://localhost", client=("10.1.2.3", 5)) as client:
        client.post("/v1/completions", json={**BODY, "odd": 1}, headers={"x-request-id": "one"})
    first, ignored, request = map(json.loads, lines)
    assert (first["level"], first["message"]) == ("info", 'listening on "here"')
    assert ignored["message"] == "POST /v1/completions ignored: odd"
    assert ignored["request_id"] == request["request_id"] == "one"
    assert request["seconds"] > 0
    del request["seconds"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", request.pop("time"))
    assert re.fullmatch(r"POST /v1/completions 200 \d\.\d{3} s one", request.pop("message"))
    assert request == {
        "level": "info", "method": "POST", "path": "/v1/completions", "status": 200,
        "client": "10.1.2.3", "request_id": "one",
    }  # fmt: skip


def test_errors_in_json_have_their_traceback(log: logging.Logger) -> None:
    lines: list[str] = []
    log_to(lines.append, requests=False, json=True)
    log.info("not shown")
    REQUEST_ID.set("")
    try:
        raise ValueError("wrong")
    except ValueError as error:
        log.error("a request failed", exc_info=error)
    (line,) = map(json.loads, lines)
    assert line["level"] == "error"
    assert "request_id" not in line
    assert "ValueError: wrong" in line["exception"]


def test_text_lines_are_written_as_they_are(log: logging.Logger) -> None:
    lines: list[str] = []
    assert log_to(lines.append, requests=False, json=False) == lines.append
    assert log.handlers == []
    log_to(lines.append, requests=True, json=False)
    log.info("a %s", "line")
    assert lines == ["a line"]
