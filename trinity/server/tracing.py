"""Traces of requests by OpenTelemetry, with the option ``traces``.

A request other than GET has a span, which continues the client's trace (W3C's traceparent). In it
each response has a span with the attributes of OpenTelemetry's GenAI conventions, and in that are
``queue``, ``prefill`` and ``decode``. Of texts, spans contain only stop strings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from trinity import __version__
from trinity.errors import InputError
from trinity.server.job import ChatJob, TextJob
from trinity.server.security import REQUEST_ID

try:
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
except ImportError as error:
    raise InputError(
        f'--traces needs OpenTelemetry ({error}); install it with: pip install "trinity-llm[otel]"'
    ) from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from trinity.runtime.generation import Timings

NANOSECONDS = 1_000_000_000
EXPORTER, PROTOCOL = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
# OpenTelemetry's names of protocols, and of their exporters.
PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
# GenerationOptions that the conventions name.
OPTIONS = (
    "max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty",
)  # fmt: skip


class Tracing:
    """Makes the spans of one server and sends them as the variables OTEL_* say."""

    def __init__(self) -> None:
        self._provider = provider_of(os.environ)
        self._tracer: Tracer = self._provider.get_tracer("trinity", __version__)

    @contextmanager
    def request(self, scope: Scope, path: str, send: Send) -> Iterator[Send]:
        """The span of a request to the endpoint ``path``; yields what sends its response."""
        headers, method = Headers(scope=scope), scope["method"]
        attributes = {
            "http.request.method": method,
            "http.route": path,
            "url.path": scope["path"],
            "url.scheme": scope.get("scheme", "http"),
            "http.request.header.x-request-id": [REQUEST_ID.get()],
        }
        if scope.get("client"):
            attributes["client.address"] = scope["client"][0]
        if "user-agent" in headers:
            attributes["user_agent.original"] = headers["user-agent"]
        with self._tracer.start_as_current_span(
            f"{method} {path}", extract(dict(headers)), SpanKind.SERVER, attributes
        ) as span:

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.set_attribute("http.response.status_code", status)
                    if status >= 500:
                        failed(span, str(status))
                await send(message)

            yield watched

    def responses(
        self, model: str, job: ChatJob | TextJob, options: Mapping[str, Any], count: int
    ) -> ResponseSpans:
        """The spans of a job's responses, which were just submitted."""
        operation = "chat" if isinstance(job, ChatJob) else "text_completion"
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "trinity",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
        }
        for name in OPTIONS:
            value = options.get(name)
            if value is not None:
                attributes[f"gen_ai.request.{name}"] = value
        if options.get("seed", 0) >= 1 << 63:  # a negative one; attributes have a sign
            attributes["gen_ai.request.seed"] = options["seed"] - (1 << 64)
        stop = options.get("stop")
        if stop:
            attributes["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else stop
        if job.n > 1:
            attributes["gen_ai.request.choice.count"] = job.n
        name = f"{operation} {model}"
        spans = [self._tracer.start_span(name, attributes=attributes) for _ in range(count)]
        return ResponseSpans(self._tracer, spans)

    def close(self) -> None:
        """Send the remaining spans; takes as long as the receiver does."""
        self._provider.shutdown()


class ResponseSpans:
    """The spans of responses that are generated together."""

    def __init__(self, tracer: Tracer, spans: list[Span]) -> None:
        self._tracer = tracer
        self._spans: dict[int, Span] = dict(enumerate(spans))
        self._start = time.time_ns()

    def ended(self, index: int, timings: Timings, reason: str) -> None:
        """End the span of a response, with those of its parts."""
        span = self._spans.pop(index, None)
        if span is None:
            return
        first_token = timings.waiting_seconds + timings.prompt_seconds
        span.set_attributes(
            {
                "gen_ai.response.finish_reasons": [reason],
                "gen_ai.usage.input_tokens": timings.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": timings.cached_tokens,
                "gen_ai.usage.output_tokens": timings.completion_tokens,
                "gen_ai.response.time_to_first_chunk": first_token,
            }
        )
        context, at = set_span_in_context(span), self._start
        for name, seconds in (
            ("queue", timings.waiting_seconds),
            ("prefill", timings.prompt_seconds),
            ("decode", timings.completion_seconds),
        ):
            part = self._tracer.start_span(name, context, start_time=at)
            at += int(NANOSECONDS * seconds)
            part.end(at)
        span.end(max(at, time.time_ns()))

    def close(self) -> None:
        """End the spans of responses that have not ended, as cancelled."""
        while self._spans:
            _, span = self._spans.popitem()
            failed(span, "cancelled")
            span.end()


def failed(span: Span, kind: str) -> None:
    """Mark a span as failed."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def provider_of(variables: Mapping[str, str]) -> TracerProvider:
    """What makes and sends spans. The SDK reads most of OpenTelemetry's variables itself.

    Raises: InputError for an exporter that is not installed.
    """
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "trinity"}))
    provider = TracerProvider(resource=resource)
    for name in variables.get(EXPORTER, "otlp").split(","):
        if name.strip() not in ("", "none"):
            provider.add_span_processor(BatchSpanProcessor(exporter_of(name.strip(), variables)))
    return provider


def exporter_of(name: str, variables: Mapping[str, str]) -> SpanExporter:
    """An exporter by its name in OTEL_TRACES_EXPORTER. Raises: InputError."""
    known = name
    if name == "otlp":
        protocol = variables.get(TRACES_PROTOCOL) or variables.get(PROTOCOL) or "http/protobuf"
        known = PROTOCOLS.get(protocol, protocol)
    for found in entry_points(group="opentelemetry_traces_exporter", name=known):
        made: SpanExporter = found.load()()
        return made
    raise InputError(
        f"{EXPORTER}: there is no exporter {known!r:.80}; install its package, or use otlp "
        '(pip install "trinity-llm[otel]"), console or none'
    )
