"""Traces of requests: their spans, the client's trace, and OpenTelemetry's variables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.conftest import LIMIT, MakeApp, socket_server, wait_for

pytest.importorskip("opentelemetry.sdk", reason='needs pip install "trinity-llm[otel]"')

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from trinity.errors import InputError
from trinity.server.tracing import provider_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CLIENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
BODY = {"model": "demo", "prompt": "Prince Andrew", "max_tokens": 5, "seed": -7}
CHAT = {"messages": [{"role": "user", "content": "Secret"}], "max_tokens": 4, "stream": True}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What servers that the test starts send."""
    exporter = InMemorySpanExporter()

    def made(variables: object) -> Any:
        provider = provider_of({"OTEL_TRACES_EXPORTER": "none"})
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return provider

    monkeypatch.setattr("trinity.server.tracing.provider_of", made)
    return exporter


@pytest.fixture
def client(spans: InMemorySpanExporter, make: MakeApp) -> Iterator[httpx.Client]:
    with (
        socket_server(make(traces=True)) as url,
        httpx.Client(base_url=url, timeout=LIMIT) as client,
    ):
        yield client


def named(spans: InMemorySpanExporter, count: int) -> dict[str, Any]:
    """The spans by name, once there are ``count``."""
    wait_for(lambda: len(spans.get_finished_spans()) == count)
    return {span.name: span for span in spans.get_finished_spans()}


def test_a_request_continues_the_clients_trace(
    client: httpx.Client, spans: InMemorySpanExporter
) -> None:
    response = client.post("/v1/completions", json=BODY, headers=CLIENT)
    usage = response.json()["usage"]
    found = named(spans, 5)
    request = found["POST /v1/completions"]
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["http.route"] == "/v1/completions"
    assert request.attributes["http.request.header.x-request-id"] == ("mine",)
    assert request.resource.attributes["service.name"] == "trinity"
    made = found["text_completion demo"]
    assert made.parent.span_id == request.context.span_id
    for name, value in {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "trinity",
        "gen_ai.request.model": "demo",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.seed": -7,
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
    }.items():
        assert made.attributes[name] == value, name
    queue, prefill, decode = (found[name] for name in ("queue", "prefill", "decode"))
    assert {part.parent.span_id for part in (queue, prefill, decode)} == {made.context.span_id}
    assert made.start_time <= queue.start_time
    assert queue.end_time == prefill.start_time
    assert prefill.end_time == decode.start_time
    assert decode.start_time < decode.end_time <= made.end_time
    assert made.attributes["gen_ai.response.time_to_first_chunk"] > 0


def test_streams_choices_and_errors(client: httpx.Client, spans: InMemorySpanExporter) -> None:
    assert client.post("/v1/chat/completions", json={**CHAT, "n": 2}).status_code == 200
    found = named(spans, 9)
    assert found["chat demo"].attributes["gen_ai.request.choice.count"] == 2
    texts = [str(dict(span.attributes)) for span in spans.get_finished_spans()]
    assert not any("Secret" in text for text in texts)
    spans.clear()
    assert client.post("/v1/chat/completions", json={}).status_code == 400
    (refused,) = named(spans, 1).values()
    assert refused.attributes["http.response.status_code"] == 400
    assert refused.status.is_unset
    for path in ("/health", "/metrics", "/v1/models"):
        client.get(path)
    assert len(spans.get_finished_spans()) == 1


def test_a_client_that_leaves(client: httpx.Client, spans: InMemorySpanExporter) -> None:
    body = {**CHAT, "max_tokens": None, "ignore_eos": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_lines())
    found = named(spans, 2)
    assert found["chat demo"].attributes["error.type"] == "cancelled"


def test_the_variables_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="OTEL_TRACES_EXPORTER: there is no exporter 'zipkin2'"):
        provider_of({"OTEL_TRACES_EXPORTER": "zipkin2"})
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    provider = provider_of({})
    assert provider.resource.attributes["service.name"] == "ours"
    (processor,) = provider._active_span_processor._span_processors
    exporter = processor._batch_processor._exporter
    assert exporter._endpoint == "http://127.0.0.1:9/v1/traces"
    provider.shutdown()


def test_it_is_off_unless_it_is_turned_on() -> None:
    code = "import sys, trinity.server.app; print([n for n in sys.modules if 'opentel' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
