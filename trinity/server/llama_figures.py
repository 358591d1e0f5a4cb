"""The figures of all models together, as llama.cpp's server names them: dashboards read those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.generation import Timings
    from trinity.runtime.scheduler_stats import SchedulerStats

COUNTER, GAUGE = "counter", "gauge"


@dataclass(slots=True)
class LlamaFigures:
    """Sums over all answers that ended, texts that got vectors included."""

    prompt: int = 0
    cached: int = 0
    prompt_seconds: float = 0.0
    predicted: int = 0
    predicted_seconds: float = 0.0
    further: int = 0  # tokens of answers but the first, which those seconds are of
    longest: int = 0
    proposed: int = 0
    accepted: int = 0
    drafts: int = 0
    # Steps and shares of each model when last seen, and of those that were unloaded since.
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    _gone: tuple[int, int] = (0, 0)

    def ended(self, timings: Timings) -> None:
        """Add an answer."""
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
            ("prompt_tokens_total", COUNTER, "Prompt tokens evaluated.", self.prompt),
            ("prompt_tokens_cached_total", COUNTER, "Prompt tokens from the cache.", self.cached),
            ("prompt_seconds_total", COUNTER, "Time of prompts.", self.prompt_seconds),
            ("tokens_predicted_total", COUNTER, "Tokens of answers.", self.predicted),
            ("tokens_predicted_seconds_total", COUNTER, "Time of answers.", self.predicted_seconds),
            ("n_decode_total", COUNTER, "Steps of all models.", steps),
            ("n_tokens_max", COUNTER, "Most tokens of a prompt and its answer.", self.longest),
            ("spec_decode_num_draft_tokens_total", COUNTER, "Tokens guessed.", self.proposed),
            ("spec_decode_num_accepted_tokens_total", COUNTER, "Of these right.", self.accepted),
            ("spec_decode_num_drafts_total", COUNTER, "Steps with guesses.", self.drafts),
            ("prompt_tokens_seconds", GAUGE, "Prompt tokens a second.", prompt_rate),
            ("predicted_tokens_seconds", GAUGE, "Tokens of answers a second.", rate),
            ("requests_processing", GAUGE, "Answers that run.", sum(w.running for w in works)),
            ("requests_deferred", GAUGE, "Answers that wait.", sum(w.waiting for w in works)),
            ("n_busy_slots_per_decode", GAUGE, "Answers in a step.", shares / max(steps, 1)),
        ]
        return "".join(
            f"# HELP llamacpp:{name} {told}\n# TYPE llamacpp:{name} {kind}\n"
            f"llamacpp:{name} {value}\n"
            for name, kind, told, value in rows
        )
