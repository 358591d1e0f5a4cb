"""Figures of the server for Prometheus, in a registry of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from trinity.runtime.scheduler_stats import SchedulerStats
from trinity.server.llama_figures import LlamaFigures

if TYPE_CHECKING:
    from trinity.runtime.generation import Timings
    from trinity.server.models import Models

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters that requests add to."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory and processor time, where /proc has them
        self.llama = LlamaFigures()
        self.began = int(time.time())
        model = ("model",)
        self._requests = Counter(
            "trinity_requests", "Requests answered.", ("path", "status"), registry=registry
        )
        self._prompt = Counter(
            "trinity_prompt_tokens", "Tokens of prompts.", model, registry=registry
        )
        self._cached = Counter(
            "trinity_cached_prompt_tokens",
            "Tokens of prompts that were evaluated before.",
            model,
            registry=registry,
        )
        self._generated = Counter(
            "trinity_generated_tokens", "Tokens of answers.", model, registry=registry
        )
        self._waiting = Histogram(
            "trinity_queue_seconds", "Time until an answer's first step.", model,
            registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._first = Histogram(
            "trinity_first_token_seconds", "Time until an answer's first token.", model,
            registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._token = Histogram(
            "trinity_token_seconds", "Mean time of an answer's further tokens.", model,
            registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._queue = Gauge(
            "trinity_waiting_answers", "Answers that wait for a step.", model, registry=registry
        )
        self._running = Gauge(
            "trinity_running_answers", "Answers with a place in steps.", model, registry=registry
        )
        self._loaded = Gauge(
            "trinity_model_loaded", "Whether a model is loaded.", model, registry=registry
        )

    def text(self, models: Models) -> bytes:
        """All figures, those of the moment too, in Prometheus' text format."""
        works = {
            name: SchedulerStats() if served.model is None else served.model.scheduler_stats()
            for name, served in models.served.items()
        }
        for served in models.served.values():
            work = works[served.name]
            self._queue.labels(served.name).set(work.waiting)
            self._running.labels(served.name).set(work.running)
            self._loaded.labels(served.name).set(served.model is not None)
        return generate_latest(self.registry) + self.llama.text(works).encode()

    def answered(self, path: str, status: int) -> None:
        """Count a request by its endpoint's path and its status."""
        self._requests.labels(path, str(status)).inc()

    def evaluated(self, model: str, tokens: int) -> None:
        """Count texts that got vectors."""
        self._prompt.labels(model).inc(tokens)
        self.llama.prompt += tokens

    def ended(self, model: str, timings: Timings) -> None:
        """Count what an answer has cost."""
        self.llama.ended(timings)
        self._prompt.labels(model).inc(timings.prompt_tokens)
        self._cached.labels(model).inc(timings.cached_tokens)
        self._generated.labels(model).inc(timings.completion_tokens)
        self._waiting.labels(model).observe(timings.waiting_seconds)
        self._first.labels(model).observe(timings.waiting_seconds + timings.prompt_seconds)
        if timings.completion_seconds:
            self._token.labels(model).observe(timings.completion_seconds / timings.decode_steps)
