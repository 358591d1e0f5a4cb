"""The sequence that generates a response: from logits to tokens, text, stop strings and chunks."""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from itertools import takewhile
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from trinity.errors import InputError
from trinity.runtime.generation import Chunk, FinishReason, Timings
from trinity.runtime.image_rows import is_token
from trinity.runtime.options import Request
from trinity.runtime.sampling.active_samplers import has_dry
from trinity.runtime.sampling.guide import Grammar, Guide
from trinity.runtime.sampling.logprobs import TokenLogprob, token_logprob
from trinity.runtime.sampling.sampler import Sampler
from trinity.runtime.sampling.stop import StopMatcher
from trinity.runtime.scheduling.inbox import Sink
from trinity.runtime.scheduling.sequence import Logits, Sequence, check_context
from trinity.runtime.speculation.budget import SpeculationBudget
from trinity.runtime.speculation.proposals import Draft, Proposer
from trinity_kernels.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from trinity.runtime.interface import Best
    from trinity.runtime.pages.kv_cache import KVCache
    from trinity.runtime.pages.page import AdapterWeights
    from trinity.runtime.sampling.dry_breakers import Breakers
    from trinity.runtime.sampling.guide import Allowed
    from trinity.runtime.sampling.mask_thread import MaskThread, Promise
    from trinity.tokenizers import Tokenizer


LEAST_SHIFTED = 4
MOST_FORCED = 16  # grammar-forced tokens computed in one step


class RequestState(Sequence):
    """A prompt and its response, which goes to ``sink`` as chunks.

    Raises: ContextLengthError if the prompt exceeds the context; InputError as ``Sampler``, and if
    the grammar cannot be used with the model.
    """

    def __init__(
        self, prompt: abc.Sequence[int], request: Request, tokenizer: Tokenizer, sink: Sink,
        *, vocab_size: int, context_length: int, adapters: AdapterWeights = (),
    ) -> None:  # fmt: skip
        check_context(len(prompt), context_length)
        super().__init__(
            list(prompt), sink, shares=request.cache_prompt, priority=request.priority,
            cancel=request.cancel, adapters=adapters, domain=request.domain,
        )  # fmt: skip
        self.images = getattr(prompt, "images", ())  # of PromptIds
        self.timings = Timings(prompt_tokens=len(prompt))
        self.accepted = 0  # accepted tokens among those proposed for the newest step
        self._limits = request.limits
        keeps = request.limits.logprobs is not None and request.limits.processed_logprobs
        self._sampler = Sampler(
            request.sampling,
            vocab_size,
            keeps=keeps,
            breakers=dry_breakers(request, tokenizer, vocab_size),
        )
        self._progress = request.progress
        own = () if request.limits.ignore_eos else tokenizer.eog_ids
        self._enders = frozenset(own) | frozenset(request.limits.stop_tokens or ())
        self._context_length = context_length
        keep = request.limits.keep
        # As in llama.cpp's server, BOS is kept too, and some positions are left for other tokens.
        kept = len(prompt) if keep is None else keep + (prompt[0] == tokenizer.bos_id)
        self._keep = max(0, min(kept, context_length - LEAST_SHIFTED))
        self._tokenizer = tokenizer
        self._decoder = tokenizer.stream(skip_special=request.skip_special)
        grammar = request.grammar
        self._guide: Guide | None = None
        self._ahead: list[int] = []  # tokens that the guide has accepted and that come next
        if grammar is not None:
            # The tokenizer's native code would lose an exception of a signal handler.
            self._guide, self._ahead = uninterrupted(begun, grammar, tokenizer, vocab_size)
        self._allowed: Promise[Allowed] | None = None
        self._ends = np.array([i for i in tokenizer.eog_ids if i < vocab_size], np.int64)
        self._barred = np.array([i for i in self._enders if i < vocab_size], np.int64)
        stop = request.limits.stop
        self._matcher = StopMatcher(stop) if stop else None
        self._ids: list[int] = []  # since the newest chunk
        self._logprobs: list[TokenLogprob] = []
        self._resumed = list(request.resumed or ())
        if self._resumed and max(self._resumed) >= vocab_size:
            raise InputError(
                f"resumed has token {max(self._resumed)}; the model has ids 0 to {vocab_size - 1}",
                "resumed",
            )
        self._most_proposals = request.proposals
        self._proposer = Proposer()
        self._proposals: list[int] = []
        self._started = False
        self._prompt_end = len(prompt)  # the tokens before it are computed as a prompt
        self._since = 0.0  # times of submission, start and first token
        self._stepped = 0.0  # seconds of the steps since the first token

    @property
    def first(self) -> int:
        """The index of the first token after which logits are needed: the newest token."""
        return len(self.tokens) - 1

    @property
    def generating(self) -> bool:
        """Whether only the newest token, and tokens that a grammar forced with it, are not
        computed.
        """
        if self.cache is None or self.cache.length < self._prompt_end:
            return False
        return 1 <= self.pending <= (1 if self._guide is None else MOST_FORCED)

    @property
    def _shifts(self) -> bool:
        """Whether the response continues when the context is full; this needs ``max_tokens``."""
        limits = self._limits
        # The positions of images do not change.
        return limits.context_shift and limits.max_tokens is not None and not self.images

    def submitted(self, arrival: int, client: str = "") -> None:
        """Note the arrival and the time; repeat the chunks of an interrupted response."""
        super().submitted(arrival, client)
        self._since = perf_counter()
        ids, self._resumed = self._resumed, []
        # The last token is chosen again, because the response may have ended with it.
        self._repeat(ids[:-1])

    def start(self, cache: KVCache) -> None:
        """Start in ``cache``; the first call ends the waiting time."""
        super().start(cache)
        # Tokens generated before an interruption or preemption are now part of the prompt.
        self._prompt_end = len(self.tokens)
        if not self._started:
            self._started = True
            self.timings.cached_tokens = min(cache.length, self.timings.prompt_tokens)
            self.timings.waiting_seconds = self._lap()
            if self._progress:
                self._tell(cache.length, 0.0)

    def evaluated(self) -> None:
        """Report how much of the prompt is computed, if ``progress`` was requested."""
        if self._progress and self.cache is not None and not self.timings.completion_tokens:
            self._tell(self.cache.length, perf_counter() - self._since)

    @property
    def _history(self) -> list[int]:
        """The tokens so far, without the rows of images."""
        return list(filter(is_token, self.tokens)) if self.images else self.tokens

    @property
    def speculates(self) -> bool:
        """Whether tokens are speculated for this sequence."""
        return self._most_proposals > 0

    def propose(
        self, budget: SpeculationBudget, most: int, draft: Draft | None = None
    ) -> list[int]:
        """Tokens to compute after the newest one; ``advance`` then needs their logits, too."""
        done = self.timings.completion_tokens
        most = min(most, self._most_proposals, self._context_length - len(self.tokens) - 1)
        if self._limits.max_tokens is not None:
            most = min(most, self._limits.max_tokens - done - 1)
        if done and self._most_proposals and budget.worthwhile:
            self._proposals = self._proposed(budget, most, draft)
            self.timings.proposed_tokens += len(self._proposals)
        return self._proposals

    def best(self, proposals: list[int]) -> Best | None:
        """The logits that the sampler needs; None for all, with a grammar or log-probabilities."""
        if self._guide is not None or self._limits.logprobs is not None:
            return None
        # End tokens are not counted while they are not allowed.
        early = self.timings.completion_tokens < self._limits.min_tokens
        return self._sampler.needed(self._history, proposals, self._barred if early else ())

    def prepare(self, mask_thread: MaskThread) -> None:
        """Compute in ``mask_thread`` which tokens the grammar allows."""
        guide = self._guide
        if guide is not None and self._allowed is None and not self._ahead and not guide.complete:
            self._allowed = mask_thread.begin(guide.allowed)

    def advance(self, logits: Logits) -> None:
        """Choose the next token, and further ones while they equal the proposed tokens."""
        assert self.cache is not None
        proposals, self._proposals, self.accepted = self._proposals, [], 0
        self.timings.drafts += bool(proposals)
        if self.timings.completion_tokens:
            self._stepped = perf_counter() - self._since
        self.evaluated()
        if self._limits.max_tokens == 0:
            self.finish("length")
            return
        for row in range(len(logits)):
            known = len(self.tokens)
            if self._guide is None:
                allowed = self._unended(logits[row])
                self._take(self._sampler.sample(logits[row], self._history, allowed), logits[row])
            else:
                self._follow(self._guide, logits[row])
            if self.ended:
                return
            if row == len(proposals) or self.tokens[known:] != [proposals[row]]:
                break
            self.accepted += 1
            self.timings.accepted_tokens += 1
        if self.cache.length > known:
            self.cache.truncate(known)

    def finish(self, reason: FinishReason) -> None:
        """End the response. Its last chunk has the text that was held back."""
        if self._started and not (self.timings.completion_tokens or self.timings.prompt_seconds):
            self.timings.prompt_seconds = perf_counter() - self._since
        text = self._decoder.finish()
        if self._matcher is not None:
            text = self._matcher.push(text)
            if self._matcher.stopped:
                reason = "stop"
            text += self._matcher.finish()
        self.end(self._chunk(text, reason))

    def _proposed(self, budget: SpeculationBudget, most: int, draft: Draft | None) -> list[int]:
        """Tokens that may follow the newest one."""
        # The drafting layer has no embeddings for rows of images.
        proposed = self._proposer.propose(self.tokens, budget, most, None if self.images else draft)
        if self.images:
            proposed = list(takewhile(is_token, proposed))
        if self._guide is None or not proposed:
            return proposed
        if self._ahead:  # forced tokens are certain
            return self._ahead[: len(proposed)]
        # Forced tokens are computed in a step of their own, even if proposals come before them.
        return proposed[: self._guide.fitting(proposed)]

    def _follow(self, guide: Guide, logits: Logits) -> None:
        """Choose a token that the grammar allows; add it and the tokens that it then forces."""
        if not self._ahead and not guide.complete:
            allowed = self._guided()
            token = self._sampler.sample(logits, self._history, allowed) if allowed.any() else None
            if token is None or token in self._enders:
                self.finish("stop")
                return
            guide.accept([token])
            self._ahead = [token, *accepted(guide)]
            self.timings.forced_tokens -= 1  # the sampler now counts it
        # A token's log-probability needs its own logits.
        count = len(self._ahead) if self._limits.logprobs is None else 1
        for token in self._ahead[:count]:
            self.timings.forced_tokens += 1
            self._take(token, logits)
            if self.ended:
                return
        del self._ahead[:count]
        if not self._ahead and guide.complete:
            self.finish("stop")

    def _repeat(self, ids: abc.Sequence[int]) -> None:
        """Add tokens that were chosen before, and consume the random numbers that they took."""
        guide = self._guide
        for token in ids:
            if not self._ahead:
                self._sampler.skip()
                if guide is not None:
                    guide.accept([token])
                    self._ahead = [token, *accepted(guide)]
            if self._ahead and self._ahead.pop(0) != token:
                raise InputError("resumed: the grammar does not allow these tokens", "resumed")
            self._add(token)
            if self.ended:
                raise InputError(
                    "resumed: the response ends before the last of these tokens", "resumed"
                )

    def _unended(self, logits: Logits) -> Allowed | None:
        """The tokens that are allowed while there are fewer than ``min_tokens``: all but end
        tokens.
        """
        if self.timings.completion_tokens >= self._limits.min_tokens:
            return None
        allowed = np.ones(len(logits), np.bool_)
        allowed[self._barred] = False
        return allowed

    def _guided(self) -> Allowed:
        """The tokens that the grammar and ``min_tokens`` allow next."""
        assert self._guide is not None
        promise, self._allowed = self._allowed, None
        allowed = self._guide.allowed() if promise is None else promise.result()
        if self._limits.ignore_eos:
            allowed[self._ends] = False
        if self.timings.completion_tokens < self._limits.min_tokens:
            ends = allowed[self._barred]
            allowed[self._barred] = False
            if not allowed.any():  # the grammar allows only the end
                allowed[self._barred] = ends
        return allowed

    def _take(self, token: int, logits: Logits) -> None:
        """Add a token that was chosen from ``logits``."""
        timings, limits = self.timings, self._limits
        if timings.completion_tokens:
            timings.decode_steps += 1
            timings.completion_seconds = self._stepped
        else:
            timings.prompt_seconds = self._lap()
        if token in self._enders:
            self.finish("stop")
            return
        if limits.logprobs is not None:
            self._logprobs.append(self._logprob(token, logits, limits.logprobs))
        self._add(token)

    def _add(self, token: int) -> None:
        """Append a token to the response, and end the response if it is the last one."""
        timings, limits = self.timings, self._limits
        timings.completion_tokens += 1
        self.tokens.append(token)
        self._ids.append(token)
        text = self._decoder.push(token)
        if self._matcher is not None:
            text = self._matcher.push(text)
            if self._matcher.stopped:
                self.end(self._chunk(text, "stop"))
                return
        if text:
            self.give(self._chunk(text))
        full = len(self.tokens) >= self._context_length
        if timings.completion_tokens == limits.max_tokens or (full and not self._shifts):
            self.finish("length")
        elif full:
            self._shift()

    def _shift(self) -> None:
        """Drop the older half of the tokens that are not kept; the rest is computed again."""
        later = len(self.tokens) - self._keep
        del self.tokens[self._keep : self._keep + (later + 1) // 2]
        self._proposer = Proposer()
        self._sampler.forget()
        kept, self._prompt_end = min(self._keep, self._prompt_end), len(self.tokens)
        if self.cache is not None:
            self.cache.truncate(min(kept, self.cache.length))

    def _chunk(self, text: str, reason: FinishReason | None = None) -> Chunk:
        logprobs = None if self._limits.logprobs is None else tuple(self._logprobs)
        timings = self.timings if reason else replace(self.timings) if self._progress else None
        stop = self._matcher.found if reason and self._matcher is not None else None
        chunk = Chunk(text, tuple(self._ids), logprobs, reason, timings, stop)
        self._ids.clear()
        self._logprobs.clear()
        return chunk

    def _tell(self, evaluated: int, seconds: float) -> None:
        timings = replace(self.timings, prompt_seconds=seconds)
        self.give(Chunk("", timings=timings, evaluated=evaluated))

    def _logprob(self, token: int, logits: Logits, top: int) -> TokenLogprob:
        if self._limits.processed_logprobs:
            return self._sampler.logprob(token, top, self._text_of)
        return token_logprob(logits, token, top, self._text_of)

    def _text_of(self, token: int) -> str:
        return self._tokenizer.bytes_of(token).decode("utf-8", "replace")

    def _lap(self) -> float:
        """Seconds since the previous call, or since the submission."""
        before, self._since = self._since, perf_counter()
        return self._since - before


def dry_breakers(request: Request, tokenizer: Tokenizer, vocab_size: int) -> Breakers | None:
    """The sequence breakers of DRY; None if it is off."""
    if request.sampling.usual or not has_dry(request.sampling):
        return None
    from trinity.runtime.sampling.dry_breakers import breakers_of  # most requests need none

    return breakers_of(tokenizer, request.sampling.dry_sequence_breakers, vocab_size)


def begun(grammar: Grammar, tokenizer: Tokenizer, vocab_size: int) -> tuple[Guide, list[int]]:
    """A guide of the grammar, and the tokens that every response begins with."""
    guide = grammar.guide(tokenizer, vocab_size)
    return guide, accepted(guide)


def accepted(guide: Guide) -> list[int]:
    """The tokens that a grammar forces next; it has accepted them."""
    tokens = guide.forced()
    if tokens:
        guide.accept(tokens)
    return tokens
