"""One conversation's state: the tokens that its KV cache holds, and how they get there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ContextLengthError, InputError
from trinity.runtime.account import Account
from trinity.runtime.cancel import Cancel
from trinity.runtime.interface import Engine
from trinity.runtime.memory import zeros
from trinity_kernels import forks


class Session:
    """A KV cache together with the ids of the tokens in it.

    The ids are written down before a forward step and cut to the cache's length before the next
    use, so the two agree whatever interrupts a step: an error, a cancellation or Ctrl-C.
    ``account`` is what speculation has won and lost here, ``forks`` the process it was made in.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._cache = engine.new_cache()
        self._tokens: list[int] = []
        self.forks = forks.count()
        self.account = Account()

    def __len__(self) -> int:
        return self._cache.length

    @property
    def tokens(self) -> list[int]:
        """Ids of the tokens in the cache. The session's own list: do not change it."""
        del self._tokens[self._cache.length :]
        return self._tokens

    def reset(self) -> None:
        """Forget everything."""
        self._cache.truncate(0)

    def reusable_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading ``tokens`` need no evaluation; never all, for the last gives logits."""
        held = self.tokens
        limit = min(len(held), len(tokens) - 1)
        return next((i for i in range(limit) if held[i] != tokens[i]), max(limit, 0))

    def evaluate(
        self, tokens: Sequence[int], cancel: Cancel | None = None
    ) -> NDArray[np.float32] | None:
        """Make ``tokens`` the cache's content, keeping the longest prefix that is there already.

        Returns: logits (vocab,) after the last token, the engine's own buffer; None if cancelled.
        Raises: InputError without tokens; ContextLengthError where they exceed the context.
        """
        if not len(tokens):
            raise InputError("there are no tokens to evaluate; give at least one")
        check_context(len(tokens), self.engine.context_length)
        reused = self.reusable_prefix(tokens)
        self._cache.truncate(reused)
        return self.extend(tokens[reused:], cancel)

    def extend(
        self, tokens: Sequence[int], cancel: Cancel | None = None
    ) -> NDArray[np.float32] | None:
        """Evaluate ``tokens`` after those in the cache, at most ``prefill_chunk`` at a time.

        Returns and raises: as ``evaluate``. ``cancel`` is looked at before each chunk.
        """
        check_context(len(self.tokens) + len(tokens), self.engine.context_length)
        ids = np.asarray(tokens, np.int32)
        logits = None
        for start in range(0, len(ids), self.engine.prefill_chunk):
            if cancel is not None and cancel.is_set():
                return None
            chunk = ids[start : start + self.engine.prefill_chunk]
            self._tokens.extend(chunk.tolist())
            logits = self.engine.forward(chunk, self._cache)[0]
        return logits

    def extend_few(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Evaluate a few tokens after those in the cache, as steps of one token each would.

        Shapes: returns (n, vocab), the engine's own buffer.
        """
        ids = np.asarray(tokens, np.int32)
        self.tokens.extend(tokens)
        return self.engine.forward_few(ids, self._cache)

    def truncate(self, length: int) -> None:
        """Forget every token from ``length`` on."""
        if length < len(self):
            self._cache.truncate(length)


def all_logits(
    engine: Engine, tokens: Sequence[int], cancel: Cancel | None = None
) -> NDArray[np.float32] | None:
    """Logits after every one of ``tokens``, in a fresh float32 cache; None if cancelled.

    Shapes: returns (n_tokens, vocab), the caller's own.
    Raises: ContextLengthError where the tokens exceed the context.
    """
    check_context(len(tokens), engine.context_length)
    ids = np.asarray(tokens, np.int32)
    what = f"the logits of {len(ids)} tokens"
    out = zeros((len(ids), engine.config.vocab_size), "f4", what, "ask for those of fewer tokens")
    cache = engine.new_cache("F32")
    for start in range(0, len(ids), engine.prefill_chunk):
        if cancel is not None and cancel.is_set():
            return None
        chunk = ids[start : start + engine.prefill_chunk]
        out[start : start + len(chunk)] = engine.forward(chunk, cache, all_logits=True)
    return out


def check_context(length: int, context_length: int) -> None:
    """Raise ContextLengthError where ``length`` tokens do not fit."""
    if length > context_length:
        raise ContextLengthError(
            f"the prompt has {length} tokens, but the context holds {context_length}: shorten the "
            "prompt, or load the model with a larger context_length (--ctx) if it supports one"
        )
