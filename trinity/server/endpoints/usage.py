"""What a request has cost, in tokens, as OpenAI counts it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from trinity import __version__
from trinity.server.job import End

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
