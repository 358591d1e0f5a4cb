"""A draft model: a smaller model with the same vocabulary proposes the next tokens.

The model verifies every proposal, so a wrong one costs time but never changes the text.
Source: Leviathan et al., arXiv 2211.17192; verified as in runtime/speculation/proposals.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np

from trinity.errors import InputError
from trinity.formats.provider import WeightProvider
from trinity.runtime.engine import CPUEngine
from trinity.runtime.interface import Rows
from trinity.runtime.pages.kv_cache import KVCache
from trinity.runtime.speculation.drafting import most_probable

# llama.cpp has the same limits: some vocabularies are padded, and some models of one family name
# their first special tokens differently.
MOST_PADDING, FIRST_COMPARED = 128, 5


class DraftModel:
    """Proposes the tokens that follow a text, which its own KV cache follows.

    It owns ``engine`` and ``provider``: ``close`` frees them.
    """

    def __init__(self, engine: CPUEngine, provider: WeightProvider, vocab_size: int) -> None:
        """``vocab_size``: that of the model that verifies."""
        self._engine, self._provider = engine, provider
        self._vocab_size = min(vocab_size, engine.config.vocab_size)
        self._logits = np.zeros((1, engine.config.vocab_size), np.float32)
        self._cache: KVCache | None = None
        self._tokens: list[int] = []  # of which the first ``cache.length`` are computed
        self._given = 0  # the number of them that are in the text; the others were proposed
        self._text: weakref.ref[KVCache] | None = None  # the model's cache of the same text

    @property
    def nbytes(self) -> int:
        """The bytes of its weights and of its KV cache."""
        provider, engine = self._provider, self._engine
        weights = sum(provider.tensor(name).nbytes for name in provider.tensor_names())
        return weights + engine.pool.limit + engine.other_bytes

    def propose(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool]
    ) -> list[int]:
        """Return at most ``most`` tokens that may follow ``tokens``, which ``cache`` belongs to.

        ``wants(probability)`` decides for each token whether verifying it is worth its cost; the
        first token that is not ends the proposal. The result is [] for a text with images or longer
        than the draft model's context, and while the draft model has many tokens to compute; each
        call then computes one step of them.
        """
        own = self._followed(cache, tokens)
        last = len(tokens) + most - 1
        if own is None or last > self._engine.context_length or not own.reserve(last):
            return []
        proposed: list[int] = []
        while self._evaluate(own):
            token, chance = most_probable(self._logits[0, : self._vocab_size])
            if not np.isfinite(chance) or not wants(chance):
                break
            proposed.append(token)
            if len(proposed) == most:
                break
            self._tokens.append(token)
        return proposed

    def _followed(self, cache: KVCache, tokens: Sequence[int]) -> KVCache | None:
        """Return the cache of ``tokens``, without what it has computed beyond the common prefix.

        None for a text that it cannot compute.
        """
        own = self._cache
        if own is None or self._text is None or self._text() is not cache:
            self._forget()
            if not self._knows(tokens):
                return None
            own = self._cache = self._engine.new_cache(domain=cache.domain)
            self._text, self._tokens = weakref.ref(cache), list(tokens)
            own.reuse(tokens)
        else:
            own.truncate(self._common(tokens, min(own.length, len(tokens) - 1)))
            if not self._knows(tokens[own.length :]):
                return None
            self._tokens[own.length :] = tokens[own.length :]
        self._given = len(tokens)
        return own

    def _common(self, tokens: Sequence[int], most: int) -> int:
        """Return the length of the common prefix of the known tokens and ``tokens``."""
        first = min(self._given, most)
        if self._tokens[:first] != tokens[:first]:
            first = 0
        pairs = zip(self._tokens[first:most], tokens[first:most], strict=True)
        return next((first + i for i, (ours, new) in enumerate(pairs) if ours != new), most)

    def _knows(self, tokens: Sequence[int]) -> bool:
        """Whether all tokens have an embedding; the rows of images have none."""
        return not tokens or max(tokens) < self._engine.config.vocab_size

    def _evaluate(self, own: KVCache) -> bool:
        """Compute tokens, at most one step's; whether the logits of the last one are known."""
        start, count = own.length, len(self._tokens)
        end = min(count, start + self._engine.prefill_chunk)
        rows = Rows(own, self._tokens[start:end], int(end == count), prompt=end - start > 1)
        self._engine.step([rows], out=self._logits)
        return end == count

    def _forget(self) -> None:
        """Give the pages of the KV cache back; their content can be reused."""
        if self._cache is not None:
            self._cache.release()
        self._cache, self._text = None, None
        self._tokens, self._given = [], 0

    def close(self) -> None:
        """Free the model's memory and its file."""
        self._forget()
        self._engine.close()
        self._provider.close()


def check_same_vocabulary(draft: WeightProvider, model: WeightProvider) -> None:
    """Raise InputError unless the tokens of a draft model are those of the model."""
    ours, theirs = (_pieces(provider) for provider in (draft, model))
    name = f"{draft.path}: as the draft model of {model.path}"
    if abs(len(ours) - len(theirs)) > MOST_PADDING:
        found = f"it has {len(ours)} tokens and the model {len(theirs)}"
    else:
        pairs = enumerate(zip(ours, theirs, strict=False))
        other = next((i for i, (a, b) in pairs if a != b and i >= FIRST_COMPARED), None)
        if other is None:
            return
        found = f"token {other} is {ours[other]!r:.40}, and {theirs[other]!r:.40} in the model"
    raise InputError(
        f"{name} it must have the same vocabulary, but {found}: use a smaller model of the same "
        "family",
        "draft_model",
    )


def _pieces(provider: WeightProvider) -> Sequence[object]:
    found = provider.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(found, Sequence):
        raise InputError(f"{provider.path}: the draft model has no vocabulary", "draft_model")
    return found
