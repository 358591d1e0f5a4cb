"""The costs of a request: OpenAI's usage, and llama.cpp's timings and progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from trinity import __version__
from trinity.runtime.generation import Timings
from trinity.server.job import End, Update

# OpenAI's system_fingerprint.
FINGERPRINT = f"build-trinity-{__version__}"


class PromptDetails(msgspec.Struct):
    """Tokens of the prompt that were cached."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Tokens of prompts and responses, and the CPU seconds of all responses."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET

    @classmethod
    def of(cls, ends: Sequence[End], n: int) -> Usage:
        """The usage of all responses; a prompt counts once for its ``n`` responses."""
        answered = sum(end.timings.completion_tokens for end in ends)
        first = [end.timings for end in ends if end.index % n == 0]
        prompt = sum(timings.prompt_tokens for timings in first)
        cached = sum(timings.cached_tokens for timings in first)
        seconds = round(sum(end.timings.cpu_seconds for end in ends), 6)
        return cls(prompt, answered, prompt + answered, PromptDetails(cached), seconds)

    @classmethod
    def so_far(cls, prompt_tokens: int, completion_tokens: int) -> Usage:
        """The usage so far of one response, as in vLLM's ``continuous_usage_stats``."""
        return cls(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens)


class LlamaTimings(msgspec.Struct):
    """The cost of a response in tokens and milliseconds. ``prompt_n`` excludes cached tokens."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float

    @classmethod
    def of(cls, timings: Timings, processed: int | None = None) -> LlamaTimings:
        """Timings in llama.cpp's words. The first token of an answer costs no step of its own.

        ``processed``: how many of the prompt's tokens are evaluated, where it is not the whole
        prompt.
        """
        if processed is None:
            processed = timings.prompt_tokens
        evaluated = processed - timings.cached_tokens
        prompt_seconds = timings.prompt_seconds
        milliseconds = 1000 * timings.completion_seconds
        further = timings.completion_tokens - 1
        return cls(
            timings.cached_tokens,
            evaluated,
            1000 * prompt_seconds,
            1000 * prompt_seconds / evaluated if evaluated else 0.0,
            evaluated / prompt_seconds if prompt_seconds else 0.0,
            timings.completion_tokens,
            milliseconds,
            milliseconds / further if further > 0 else 0.0,
            1000 / milliseconds * further if milliseconds and further > 0 else 0.0,
        )

    @classmethod
    def of_one(cls, ends: Collection[End]) -> LlamaTimings | UnsetType:
        """The timings of the only response; those of several overlap."""
        if len(ends) != 1:
            return UNSET
        (end,) = ends
        return cls.of(end.timings)


class PromptProgress(msgspec.Struct):
    """How many of a prompt's tokens are computed or cached."""

    total: int
    cache: int
    processed: int
    time_ms: int

    @classmethod
    def of(cls, update: Update) -> PromptProgress | None:
        """Return the progress of the prompt, or None if the update has none."""
        timings = update.timings
        if update.evaluated is None or timings is None:
            return None
        return cls(
            timings.prompt_tokens,
            timings.cached_tokens,
            update.evaluated,
            round(1000 * timings.prompt_seconds),
        )
