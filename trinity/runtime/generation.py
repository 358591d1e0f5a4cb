"""The results of generation: chunks of text, whole completions, timings and finish reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trinity.runtime.sampling.logprobs import TokenLogprob

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(slots=True)
class Timings:
    """The cost of one generation. Times are seconds, without the time of the caller.

    Requests that run at the same time share steps, so their times overlap.
    """

    prompt_tokens: int = 0
    """The length of the whole prompt."""
    cached_tokens: int = 0
    """Prompt tokens that an earlier request had computed."""
    prompt_seconds: float = 0.0
    """From the first step to the choice of the first token."""
    completion_tokens: int = 0
    """The number of generated tokens."""
    decode_steps: int = 0
    """Steps of one token after the first token; a step with accepted tokens counts for each."""
    completion_seconds: float = 0.0
    """The time of ``decode_steps``."""
    proposed_tokens: int = 0
    """Speculated tokens, computed in one step with the token before them."""
    accepted_tokens: int = 0
    """Speculated tokens that were right."""
    waiting_seconds: float = 0.0
    """From the submission to the first step."""
    forced_tokens: int = 0
    """Tokens that were the only ones the grammar allowed."""
    drafts: int = 0
    """Steps with speculated tokens."""
    cpu_seconds: float = 0.0
    """The process's CPU time in the request's steps, divided by rows; these do not overlap."""

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens computed per second, without cached ones; 0 if there were none."""
        evaluated = self.prompt_tokens - self.cached_tokens
        return evaluated / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens generated per second after the first; 0 if no step followed the prompt's."""
        return self.decode_steps / self.completion_seconds if self.completion_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a streamed response.

    A chunk may consist of several tokens (parts of a character, the beginning of a stop string).
    With the option ``progress``, chunks without text come before the first token: when the prompt
    starts, and after each part of it.
    """

    text: str
    """Text that is certain; may be empty in the last chunk."""
    token_ids: tuple[int, ...] = ()
    """The chunk's tokens."""
    logprobs: tuple[TokenLogprob, ...] | None = None
    """One for each of ``token_ids`` if log-probabilities were requested."""
    finish_reason: FinishReason | None = None
    """Given in the last chunk; see ``Completion``."""
    timings: Timings | None = None
    """Given in the last chunk, with ``progress`` in every chunk."""
    stop: str | None = None
    """The stop string that ended the response, in the last chunk."""
    evaluated: int | None = None
    """Prompt tokens computed so far, cached ones included, in the chunks of ``progress``."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole response; ``str(completion)`` is its text."""

    text: str
    """The text without the stop string."""
    token_ids: list[int]
    """All tokens, those of the stop string included, without the end-of-generation token."""
    finish_reason: FinishReason
    """ "stop" (an end-of-generation token or a stop string), "length" (``max_tokens`` or the
    context is reached) or "cancelled".
    """
    timings: Timings
    """The cost of the completion."""
    prompt_tokens: int
    """The number of tokens of the prompt."""
    logprobs: list[TokenLogprob] | None = None
    """One for each of ``token_ids`` if log-probabilities were requested."""

    def __str__(self) -> str:
        return self.text


def collect(chunks: Iterable[Chunk]) -> Completion:
    """The completion that consists of the chunks."""
    text: list[str] = []
    ids: list[int] = []
    logprobs: list[TokenLogprob] | None = None
    for chunk in chunks:
        text.append(chunk.text)
        ids.extend(chunk.token_ids)
        if chunk.logprobs is not None:
            logprobs = logprobs or []
            logprobs.extend(logprob.plain() for logprob in chunk.logprobs)
        if chunk.finish_reason is not None and chunk.timings is not None:
            return Completion(
                "".join(text),
                ids,
                chunk.finish_reason,
                chunk.timings,
                chunk.timings.prompt_tokens,
                logprobs,
            )
    raise AssertionError("a stream ends with a chunk that has a finish reason")


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """All chunks of a response as one chunk."""
    last = chunks[-1]
    logprobs = None
    if last.logprobs is not None:
        logprobs = tuple(logprob for chunk in chunks for logprob in chunk.logprobs or ())
    text = "".join(chunk.text for chunk in chunks)
    ids = tuple(token for chunk in chunks for token in chunk.token_ids)
    return replace(last, text=text, token_ids=ids, logprobs=logprobs)
