"""What a request has cost: OpenAI's usage, and llama.cpp's timings and progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from trinity import __version__
from trinity.runtime.generation import Timings
from trinity.server.job import End, Piece

# What answered.
FINGERPRINT = f"build-trinity-{__version__}"


class PromptDetails(msgspec.Struct):
    """Tokens of the prompt that were evaluated before."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Tokens of prompts and answers, and the seconds of processors that all answers took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET


def usage_of(ends: Sequence[End], n: int) -> Usage:
    """Of all answers; a prompt counts once for its ``n`` answers, cached where its first was."""
    answered = sum(end.timings.completion_tokens for end in ends)
    first = [end.timings for end in ends if end.index % n == 0]
    prompt = sum(timings.prompt_tokens for timings in first)
    cached = sum(timings.cached_tokens for timings in first)
    seconds = round(sum(end.timings.cpu_seconds for end in ends), 6)
    return Usage(prompt, answered, prompt + answered, PromptDetails(cached), seconds)


def usage_so_far(prompt_tokens: int, completion_tokens: int) -> Usage:
    """Of one answer that is being written, as vLLM's ``continuous_usage_stats`` count it."""
    return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens)


class LlamaTimings(msgspec.Struct):
    """What an answer has cost; times in milliseconds. ``prompt_n`` leaves out what was cached."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class PromptProgress(msgspec.Struct):
    """How many of a prompt's tokens are evaluated, those that were cached too."""

    total: int
    cache: int
    processed: int
    time_ms: int


def timings_of(timings: Timings, processed: int | None = None) -> LlamaTimings:
    """Timings in llama.cpp's words. The first token of an answer costs no step of its own.

    ``processed``: how many of the prompt's tokens are evaluated, where it is not the whole prompt.
    """
    if processed is None:
        processed = timings.prompt_tokens
    evaluated = processed - timings.cached_tokens
    prompt_seconds = timings.prompt_seconds
    milliseconds = 1000 * timings.completion_seconds
    further = timings.completion_tokens - 1
    return LlamaTimings(
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


def timings_of_one(ends: Collection[End]) -> LlamaTimings | UnsetType:
    """The timings where there was one answer; those of several overlap."""
    if len(ends) != 1:
        return UNSET
    (end,) = ends
    return timings_of(end.timings)


def progress_of(piece: Piece) -> PromptProgress | None:
    """How far the prompt is, where a piece says that."""
    timings = piece.timings
    if piece.evaluated is None or timings is None:
        return None
    return PromptProgress(
        timings.prompt_tokens,
        timings.cached_tokens,
        piece.evaluated,
        round(1000 * timings.prompt_seconds),
    )
