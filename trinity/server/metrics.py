"""Metrics for Prometheus: the server's own, and those of llama.cpp's server and of vLLM."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from trinity.runtime.scheduling.scheduler_stats import SchedulerStats

if TYPE_CHECKING:
    from trinity.runtime.generation import Timings
    from trinity.server.models import Models

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


class Metrics:
    """Counters that requests add to."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory and CPU time, if there is /proc
        self.llama = LlamaMetrics()
        self._vllm = VllmMetrics(registry)
        self.began = int(time.time())
        self._writing = Lock()
        model = ("model",)
        self._requests = Counter(
            "trinity_requests", "Completed requests.", ("path", "status"), registry=registry
        )
        self._prompt = Counter("trinity_prompt_tokens", "Prompt tokens.", model, registry=registry)
        self._cached = Counter(
            "trinity_cached_prompt_tokens",
            "Prompt tokens from the cache.",
            model,
            registry=registry,
        )
        self._generated = Counter(
            "trinity_generated_tokens", "Generated tokens.", model, registry=registry
        )
        self._waiting = Histogram(
            "trinity_queue_seconds", "Time until the first step of a response.", model,
            registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._first = Histogram(
            "trinity_first_token_seconds", "Time until the first token of a response.", model,
            registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._token = Histogram(
            "trinity_token_seconds", "Mean time per token after the first.", model,
            registry=registry, buckets=SECONDS,
        )  # fmt: skip
        self._queue = Gauge(
            "trinity_waiting_answers", "Waiting responses.", model, registry=registry
        )
        self._running = Gauge(
            "trinity_running_answers", "Running responses.", model, registry=registry
        )
        self._loaded = Gauge(
            "trinity_model_loaded", "Whether a model is loaded.", model, registry=registry
        )

    def text(self, models: Models) -> bytes:
        """Return all metrics in Prometheus' text format. It takes 3 ms: call it in a thread."""
        with self._writing:
            return self._text(models)

    def _text(self, models: Models) -> bytes:
        works = {
            name: SchedulerStats() if served.model is None else served.model.scheduler_stats()
            for name, served in models.served.items()
        }
        for served in models.served.values():
            work = works[served.name]
            self._queue.labels(served.name).set(work.waiting)
            self._running.labels(served.name).set(work.running)
            self._loaded.labels(served.name).set(served.model is not None)
            usage = 0.0 if served.model is None else served.model.kv_cache_usage()
            self._vllm.current(served.name, work, usage)
        return generate_latest(self.registry) + self.llama.text(works).encode()

    def answered(self, path: str, status: int) -> None:
        """Count a request by its endpoint's path and its status."""
        self._requests.labels(path, str(status)).inc()

    def evaluated(self, model: str, tokens: int) -> None:
        """Count the tokens of embedded texts."""
        self._prompt.labels(model).inc(tokens)
        self.llama.prompt += tokens

    def ended(self, model: str, timings: Timings, reason: str) -> None:
        """Count a response that has ended for a reason (see ``FinishReason``)."""
        self.llama.ended(timings)
        self._vllm.ended(model, timings, reason)
        self._prompt.labels(model).inc(timings.prompt_tokens)
        self._cached.labels(model).inc(timings.cached_tokens)
        self._generated.labels(model).inc(timings.completion_tokens)
        self._waiting.labels(model).observe(timings.waiting_seconds)
        self._first.labels(model).observe(timings.waiting_seconds + timings.prompt_seconds)
        if timings.completion_seconds:
            self._token.labels(model).observe(timings.completion_seconds / timings.decode_steps)


class VllmMetrics:
    """The metrics that vLLM's Grafana boards read, under vLLM's current and former names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("model_name", "engine")

        def counter(name: str, told: str, *more: str) -> Counter:
            return Counter(f"vllm:{name}", told, (*labels, *more), registry=registry)

        def gauge(name: str, told: str) -> Gauge:
            return Gauge(f"vllm:{name}", told, labels, registry=registry)

        def histogram(name: str, told: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return Histogram(f"vllm:{name}", told, labels, registry=registry, buckets=buckets)

        self._prompt = counter("prompt_tokens", "Prompt tokens.")
        self._generated = counter("generation_tokens", "Generated tokens.")
        self._queries = counter("prefix_cache_queries", "Prompt tokens looked up in the cache.")
        self._hits = counter("prefix_cache_hits", "Prompt tokens found in the cache.")
        self._success = counter("request_success", "Completed responses.", "finished_reason")
        self._running = gauge("num_requests_running", "Running responses.")
        self._waiting = gauge("num_requests_waiting", "Waiting responses.")
        usage = "The part of the KV cache that responses use."
        self._usage = [
            gauge(name, usage) for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc")
        ]
        self._whole = histogram("e2e_request_latency_seconds", "Time of a response.")
        self._first = histogram("time_to_first_token_seconds", "Time to the first token.")
        further = "Mean time per token after the first."
        names = (
            "inter_token_latency_seconds", "time_per_output_token_seconds",
            "request_time_per_output_token_seconds",
        )  # fmt: skip
        self._token = [histogram(name, further) for name in names]
        self._queue = histogram("request_queue_time_seconds", "Time in the queue.")
        self._prefill = histogram("request_prefill_time_seconds", "Time of the prompt.")
        self._decode = histogram("request_decode_time_seconds", "Time of further tokens.")
        self._inference = histogram("request_inference_time_seconds", "Time after the queue.")
        self._prompts = histogram("request_prompt_tokens", "Prompt tokens of a request.", TOKENS)
        generated = ("request_generation_tokens", "request_max_num_generation_tokens")
        self._lengths = [
            histogram(name, "Generated tokens of a response.", TOKENS) for name in generated
        ]

    def current(self, model: str, work: SchedulerStats, usage: float) -> None:
        """Set the current values of a model."""
        self._running.labels(model, "0").set(work.running)
        self._waiting.labels(model, "0").set(work.waiting)
        for one in self._usage:
            one.labels(model, "0").set(usage)

    def ended(self, model: str, timings: Timings, reason: str) -> None:
        """Count a finished response."""
        prompt, computing = timings.prompt_seconds, timings.completion_seconds
        counts = (
            (self._prompt, timings.prompt_tokens),
            (self._generated, timings.completion_tokens),
            (self._queries, timings.prompt_tokens),
            (self._hits, timings.cached_tokens),
        )
        for counter, count in counts:
            counter.labels(model, "0").inc(count)
        self._success.labels(model, "0", reason).inc()
        observed = [
            (self._whole, timings.waiting_seconds + prompt + computing),
            (self._first, timings.waiting_seconds + prompt),
            (self._queue, timings.waiting_seconds),
            (self._prefill, prompt),
            (self._decode, computing),
            (self._inference, prompt + computing),
            (self._prompts, timings.prompt_tokens),
            *((one, timings.completion_tokens) for one in self._lengths),
        ]
        if timings.decode_steps:
            observed += [(one, computing / timings.decode_steps) for one in self._token]
        for histogram, value in observed:
            histogram.labels(model, "0").observe(value)


COUNTER, GAUGE = "counter", "gauge"


@dataclass(slots=True)
class LlamaMetrics:
    """llama.cpp's metrics, which dashboards read: sums over all models and ended responses."""

    prompt: int = 0
    cached: int = 0
    prompt_seconds: float = 0.0
    predicted: int = 0
    predicted_seconds: float = 0.0
    further: int = 0  # tokens that predicted_seconds produced: all but each response's first
    longest: int = 0
    proposed: int = 0
    accepted: int = 0
    drafts: int = 0
    # Steps of each model and sequences in them: as last seen, and of models unloaded since.
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _gone: tuple[int, int] = (0, 0)

    def ended(self, timings: Timings) -> None:
        """Count a finished response."""
        self.prompt += timings.prompt_tokens - timings.cached_tokens
        self.cached += timings.cached_tokens
        self.prompt_seconds += timings.prompt_seconds
        self.predicted += timings.completion_tokens
        self.predicted_seconds += timings.completion_seconds
        self.further += timings.decode_steps
        self.longest = max(self.longest, timings.prompt_tokens + timings.completion_tokens)
        self.proposed += timings.proposed_tokens
        self.accepted += timings.accepted_tokens
        self.drafts += timings.drafts

    def text(self, by_model: Mapping[str, SchedulerStats]) -> str:
        """Lines in Prometheus' text format; ``by_model`` has every model, loaded or not."""
        works = list(by_model.values())
        for name, work in by_model.items():
            before = self._seen.get(name, (0, 0))
            if work.steps < before[0]:  # it was unloaded
                self._gone = self._gone[0] + before[0], self._gone[1] + before[1]
            self._seen[name] = work.steps, work.shares
        steps = self._gone[0] + sum(work.steps for work in works)
        shares = self._gone[1] + sum(work.shares for work in works)
        prompt_rate = self.prompt / self.prompt_seconds if self.prompt_seconds else 0.0
        rate = self.further / self.predicted_seconds if self.predicted_seconds else 0.0
        rows: list[tuple[str, str, str, float]] = [
            ("prompt_tokens_total", COUNTER, "Prompt tokens computed.", self.prompt),
            ("prompt_tokens_cached_total", COUNTER, "Prompt tokens from the cache.", self.cached),
            ("prompt_seconds_total", COUNTER, "Time spent on prompts.", self.prompt_seconds),
            ("tokens_predicted_total", COUNTER, "Generated tokens.", self.predicted),
            (
                "tokens_predicted_seconds_total",
                COUNTER,
                "Time spent on generation.",
                self.predicted_seconds,
            ),
            ("n_decode_total", COUNTER, "Steps of all models.", steps),
            ("n_tokens_max", COUNTER, "Largest sequence: prompt and response.", self.longest),
            ("spec_decode_num_draft_tokens_total", COUNTER, "Speculated tokens.", self.proposed),
            ("spec_decode_num_accepted_tokens_total", COUNTER, "Accepted tokens.", self.accepted),
            ("spec_decode_num_drafts_total", COUNTER, "Steps with speculated tokens.", self.drafts),
            ("prompt_tokens_seconds", GAUGE, "Prompt tokens per second.", prompt_rate),
            ("predicted_tokens_seconds", GAUGE, "Generated tokens per second.", rate),
            ("requests_processing", GAUGE, "Running requests.", sum(w.running for w in works)),
            ("requests_deferred", GAUGE, "Waiting requests.", sum(w.waiting for w in works)),
            ("n_busy_slots_per_decode", GAUGE, "Mean requests per step.", shares / max(steps, 1)),
        ]
        return "".join(
            f"# HELP llamacpp:{name} {told}\n# TYPE llamacpp:{name} {kind}\n"
            f"llamacpp:{name} {value}\n"
            for name, kind, told, value in rows
        )
