"""The results of generation: chunks of text, whole completions, timings and finish reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trinity.runtime.sampler import TokenLogprob

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(slots=True)
class Timings:
    """What one generation cost; its consumer's time is none of it.

    Units: seconds. ``prompt_tokens`` counts the whole prompt, ``cached_tokens`` those of it that
    were evaluated before, for whomever. ``waiting_seconds`` pass until its first step,
    ``prompt_seconds`` then until the first token is chosen. ``completion_seconds`` is the time of
    ``decode_steps`` forward steps of one token each, or of fewer steps that did the same: of
    ``proposed_tokens`` evaluated along with the token before them, ``accepted_tokens`` turned out
    to be the next. ``forced_tokens`` of the answer were the only ones that its grammar allowed:
    they are evaluated along with the token before them. ``drafts`` is the number of steps with
    proposed tokens. Requests that run at the same time share
    their steps, so theirs overlap. ``cpu_seconds`` is processor time of the whole process during
    the steps, of each step the part that the request's rows were of all rows: those do not overlap.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    completion_tokens: int = 0
    decode_steps: int = 0
    completion_seconds: float = 0.0
    proposed_tokens: int = 0
    accepted_tokens: int = 0
    waiting_seconds: float = 0.0
    forced_tokens: int = 0
    drafts: int = 0
    cpu_seconds: float = 0.0

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
    """A piece of a streamed answer: text that is certain, and the tokens read for it.

    A piece may come from several tokens (part of a character, the beginning of a stop string).
    The last chunk has ``finish_reason`` and ``timings``, and its text may be empty. ``logprobs``
    runs parallel to ``token_ids`` where log-probabilities were asked for. ``stop`` is the stop
    string that ended the answer, in the last chunk, if one did.

    Where ``progress`` was asked for, every chunk has the timings so far, and chunks without text
    come before the first token: as the prompt begins to be evaluated, and after each part of it.
    Their ``evaluated`` is how many of its tokens are evaluated, those from the cache too.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    timings: Timings | None = None
    stop: str | None = None
    evaluated: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer.

    ``finish_reason`` is "stop" (an end-of-generation token or a stop string), "length"
    (``max_tokens`` reached or the context full) or "cancelled". ``token_ids`` leaves out the
    end-of-generation token, but holds the tokens of a stop string, which ``text`` leaves out.
    ``prompt_tokens`` is the prompt's number of tokens. ``str(completion)`` is the text.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    timings: Timings
    prompt_tokens: int
    logprobs: list[TokenLogprob] | None = None

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
            logprobs.extend(chunk.logprobs)
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
