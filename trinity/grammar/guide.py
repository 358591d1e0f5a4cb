"""The state of a grammar in one response: llguidance's matcher as a guide of the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.grammar.limits import short

WORD_BITS = 32


class MatcherGuide:
    """A ``Guide`` of runtime/sampling/guide.py. After an error of the matcher every call fails."""

    def __init__(self, matcher: Any, table_size: int, vocab_size: int) -> None:
        self._matcher = matcher
        self._bits = np.zeros(-(-table_size // WORD_BITS), np.int32)
        self._vocab_size = vocab_size
        self.complete: bool = matcher.is_stopped()  # the text is complete, and nothing may follow

    def allowed(self) -> NDArray[np.bool_]:
        """Return which tokens may come next, (vocab_size,).

        Raises InputError if the grammar is too complex for a step.
        """
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        mask = np.unpackbits(self._bits.view(np.uint8), bitorder="little").view(np.bool_)
        if len(mask) < self._vocab_size:  # the model has logits for tokens that do not exist
            mask = np.concatenate([mask, np.zeros(self._vocab_size - len(mask), np.bool_)])
        mask = mask[: self._vocab_size]
        if not mask.any() and not self._matcher.is_accepting():
            raise InputError(
                "the grammar requires text that no token of the model's vocabulary begins with"
            )
        return mask

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by ``tokens``. Raises InputError if the grammar does not allow them."""
        if not self._matcher.consume_tokens(list(tokens)):
            self._check()
            raise InputError("the grammar does not allow the token")
        self.complete = self._matcher.is_stopped()

    def forced(self) -> list[int]:
        """Return the next tokens if the grammar allows only these."""
        tokens: list[int] = self._matcher.compute_ff_tokens()
        self._check()
        return tokens

    def fitting(self, tokens: Sequence[int]) -> int:
        """Return how many of ``tokens`` are allowed in order, with no forced token between."""
        trial = self._matcher.deep_copy()  # an error affects only the copy
        for count, token in enumerate(tokens):
            if not trial.try_consume_tokens([token]) or trial.is_stopped():
                return count
            if trial.compute_ff_tokens():
                return count
        return len(tokens)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InputError(f"the grammar cannot continue: {short(self._matcher.get_error())}")
