"""Figures of the server for Prometheus, in a registry of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram

if TYPE_CHECKING:
    from trinity.runtime.generation import Timings

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters that requests add to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_model = {"labelnames": ("model",), "registry": self.registry}
        self._requests = Counter(
            "trinity_requests", "Requests answered.", ("path", "status"), registry=self.registry
        )
        self._prompt = Counter("trinity_prompt_tokens", "Tokens of prompts.", **of_model)
        self._cached = Counter(
            "trinity_cached_prompt_tokens", "Tokens of prompts that were evaluated before.",
            **of_model,
        )  # fmt: skip
        self._generated = Counter("trinity_generated_tokens", "Tokens of answers.", **of_model)
        self._waiting = Histogram(
            "trinity_queue_seconds", "Time until an answer's first step.", buckets=SECONDS,
            **of_model,
        )  # fmt: skip
        self._first = Histogram(
            "trinity_first_token_seconds", "Time until an answer's first token.", buckets=SECONDS,
            **of_model,
        )  # fmt: skip
        self._token = Histogram(
            "trinity_token_seconds", "Mean time of an answer's further tokens.", buckets=SECONDS,
            **of_model,
        )  # fmt: skip

    def answered(self, path: str, status: int) -> None:
        """Count a request by its endpoint's path and its status."""
        self._requests.labels(path, status).inc()

    def ended(self, model: str, timings: Timings) -> None:
        """Count what an answer has cost."""
        self._prompt.labels(model).inc(timings.prompt_tokens)
        self._cached.labels(model).inc(timings.cached_tokens)
        self._generated.labels(model).inc(timings.completion_tokens)
        self._waiting.labels(model).observe(timings.waiting_seconds)
        self._first.labels(model).observe(timings.waiting_seconds + timings.prompt_seconds)
        if timings.decode_steps:
            self._token.labels(model).observe(timings.completion_seconds / timings.decode_steps)
