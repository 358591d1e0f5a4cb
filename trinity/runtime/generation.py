"""The generation loop in three layers: token ids, streamed text, the whole answer."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from trinity.runtime.cancel import Cancel
from trinity.runtime.limits import Limits
from trinity.runtime.sampler import Sampler, TokenLogprob, token_logprob
from trinity.runtime.sampling_params import SamplingParams
from trinity.runtime.session import Session, check_context
from trinity.runtime.speculation import Decoder
from trinity.runtime.stop import StopMatcher

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(slots=True)
class Timings:
    """What one generation cost, without the time that the consumer of a stream took.

    Units: seconds. ``prompt_tokens`` counts the whole prompt, ``cached_tokens`` those of it that
    the KV cache already held. ``prompt_seconds`` runs until the first token is chosen.
    ``completion_seconds`` is the time of ``decode_steps`` forward steps of one token each, or of
    fewer steps that did the same: of ``proposed_tokens`` evaluated along with the token before
    them, ``accepted_tokens`` turned out to be the next.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_seconds: float = 0.0
    completion_tokens: int = 0
    decode_steps: int = 0
    completion_seconds: float = 0.0
    proposed_tokens: int = 0
    accepted_tokens: int = 0

    def charge(self, seconds: float) -> None:
        """Add time to the prompt's or, once there has been a decode step, to the completion's."""
        if self.decode_steps:
            self.completion_seconds += seconds
        else:
            self.prompt_seconds += seconds

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens evaluated per second; 0 where none were."""
        evaluated = self.prompt_tokens - self.cached_tokens
        return evaluated / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens generated per second after the first; 0 where there are none."""
        return self.decode_steps / self.completion_seconds if self.completion_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a streamed answer: text that is certain, and the tokens read for it.

    A piece may come from several tokens (part of a character, the beginning of a stop string).
    The last chunk has ``finish_reason`` and ``timings``, and its text may be empty. ``logprobs``
    runs parallel to ``token_ids`` where log-probabilities were asked for.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    timings: Timings | None = None


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


@dataclass(slots=True)
class Progress:
    """What ``generate_step`` reports beside its tokens."""

    timings: Timings = field(default_factory=Timings)
    finish_reason: FinishReason = "cancelled"


def generate_step(
    session: Session,
    prompt: Sequence[int],
    params: SamplingParams,
    limits: Limits,
    *,
    eog_ids: Collection[int] = (),
    cancel: Cancel | None = None,
    progress: Progress | None = None,
    proposals: int = 0,
) -> Generator[tuple[int, TokenLogprob | None], None, None]:
    """Token ids after ``prompt``, each with its log-probability where ``limits`` wants it.

    An end-of-generation token ends the answer and is not given out. ``progress`` is kept up to
    date, and its ``finish_reason`` is set at the end. A prompt as long as the context still gives
    one token. ``proposals``: how many tokens may be guessed at once; see runtime/speculation.py.

    Raises: ContextLengthError where the prompt exceeds the context; InputError as ``Sampler``.
    """
    progress = progress or Progress()
    timings = progress.timings
    engine = session.engine
    check_context(len(prompt), engine.context_length)
    sampler = Sampler(params, engine.config.vocab_size)
    enders = () if limits.ignore_eos else frozenset(eog_ids)
    timings.prompt_tokens = len(prompt)
    timings.cached_tokens = session.reusable_prefix(prompt)
    started = perf_counter()
    logits = session.evaluate(prompt, cancel)
    if logits is not None and limits.max_tokens == 0:
        progress.finish_reason = "length"
        logits = None
    decoder = Decoder(session, proposals)
    try:
        while logits is not None:
            token = sampler.sample(logits, decoder.tokens)
            logprob = None
            if limits.logprobs is not None:
                logprob = token_logprob(logits, token, limits.logprobs)
            timings.charge(perf_counter() - started)
            if token in enders:
                progress.finish_reason = "stop"
                return
            timings.completion_tokens += 1
            yield token, logprob
            full = len(decoder.tokens) >= engine.context_length
            if full or timings.completion_tokens == limits.max_tokens:
                progress.finish_reason = "length"
                return
            started = perf_counter()
            wanted = None
            if limits.max_tokens is not None:
                wanted = limits.max_tokens - timings.completion_tokens
            logits = decoder.step(token, cancel, wanted)
            timings.decode_steps += logits is not None
            timings.proposed_tokens = decoder.proposed
            timings.accepted_tokens = decoder.accepted
        timings.charge(perf_counter() - started)
    finally:
        decoder.settle()


def stream(
    session: Session,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    params: SamplingParams,
    limits: Limits,
    *,
    cancel: Cancel | None = None,
    proposals: int = 0,
) -> Generator[Chunk, None, None]:
    """Text after ``prompt`` as it becomes certain; the last chunk has the finish reason."""
    progress = Progress()
    decoder = tokenizer.stream(skip_special=True)
    matcher = StopMatcher(limits.stop)
    ids: list[int] = []
    logprobs: list[TokenLogprob] = []

    def chunk(text: str, reason: FinishReason | None = None) -> Chunk:
        piece = Chunk(
            text,
            tuple(ids),
            None if limits.logprobs is None else tuple(logprobs),
            reason,
            progress.timings if reason else None,
        )
        ids.clear()
        logprobs.clear()
        return piece

    steps = generate_step(
        session,
        prompt,
        params,
        limits,
        eog_ids=tokenizer.eog_ids,
        cancel=cancel,
        progress=progress,
        proposals=proposals,
    )
    with closing(steps):
        for token, logprob in steps:
            ids.append(token)
            if logprob is not None:
                logprobs.append(logprob)
            text = matcher.push(decoder.push(token))
            if matcher.stopped:
                yield chunk(text, "stop")
                return
            if text:
                yield chunk(text)
    text = matcher.push(decoder.finish())
    reason: FinishReason = "stop" if matcher.stopped else progress.finish_reason
    yield chunk(text + matcher.finish(), reason)


def collect(chunks: Generator[Chunk, None, None]) -> Completion:
    """The whole answer of a stream."""
    text: list[str] = []
    ids: list[int] = []
    logprobs: list[TokenLogprob] | None = None
    for chunk in chunks:
        text.append(chunk.text)
        ids.extend(chunk.token_ids)
        if chunk.logprobs is not None:
            logprobs = [*(logprobs or []), *chunk.logprobs]
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


def generate(
    session: Session,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    params: SamplingParams,
    limits: Limits,
    *,
    cancel: Cancel | None = None,
    proposals: int = 0,
) -> Completion:
    """The whole answer to ``prompt``."""
    chunks = stream(session, tokenizer, prompt, params, limits, cancel=cancel, proposals=proposals)
    return collect(chunks)
