"""Decoding that guesses: proposed tokens are evaluated in one step with the token before them.

A step of a few tokens reads the weights once, so it costs less than as many steps of one. What a
proposal's logits choose is chosen as ever, by the sampler, one token after the other; only where
the chosen token is the proposed one its logits are there already. So the text is the same as
without, to the last bit of every logit, and a wrong proposal costs time alone.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.cancel import Cancel
from trinity.runtime.ngram import NgramIndex
from trinity.runtime.session import Session


class Decoder:
    """The steps after a prompt that a session has evaluated, with at most ``most`` proposals each.

    ``tokens`` is the text so far. ``proposed`` and ``accepted`` count proposed tokens.
    """

    def __init__(self, session: Session, most: int) -> None:
        self._session = session
        self._most = min(most, session.engine.few - 1)
        self._index: NgramIndex | None = None
        if self._most > 0 and session.account.worthwhile:
            self._index = NgramIndex(session.tokens)
        self._size = 0  # of the n-gram that the proposal follows
        self._proposal: list[int] = []
        self._right = 0
        self._logits: NDArray[np.float32] | None = None  # of the proposal, if it was evaluated
        self._seconds = 0.0
        self.proposed = self.accepted = 0

    @property
    def tokens(self) -> list[int]:
        """Ids of the tokens so far. Do not change it."""
        return self._session.tokens if self._index is None else self._index.tokens

    def step(
        self, token: int, cancel: Cancel | None = None, wanted: int | None = None
    ) -> NDArray[np.float32] | None:
        """Logits (vocab,) after one more token; None if cancelled. They hold until the next step.

        ``wanted``: how many tokens will be asked for after this one, at most.
        """
        index = self._index
        if index is None:
            return self._session.extend([token], cancel)
        if cancel is not None and cancel.is_set():
            return None
        if self._right < len(self._proposal) and self._proposal[self._right] == token:
            self._right += 1
            if self._logits is not None:
                self.accepted += 1
                index.append(token)
                logits: NDArray[np.float32] = self._logits[self._right]
                return logits
        if self._proposal:
            wrong = self._right < len(self._proposal)
            self._session.account.learn(self._size, self._right, wrong)
        self.settle()
        if not self._session.account.worthwhile:
            self._index = None
            return self._session.extend([token])
        index.append(token)
        return self._evaluate(index, wanted)

    def _evaluate(self, index: NgramIndex, wanted: int | None) -> NDArray[np.float32] | None:
        """A step with the last token of ``index`` and a proposal."""
        session, account = self._session, self._session.account
        token = index.tokens[-1]
        count = 0
        size, start = index.match()
        if size:
            room = session.engine.context_length - len(index.tokens)
            most = self._most if wanted is None else min(self._most, wanted - 1)
            count = account.proposals(size, min(most, room))
            # One that is not evaluated still shows how reliable such proposals are.
            self._size, self._proposal = size, index.continuation(start, max(count, 1))
        started = perf_counter()
        if count == 0:
            logits = session.extend([token])
            account.single(perf_counter() - started)
            return logits
        self.proposed += count
        self._logits = session.extend_few([token, *self._proposal])
        self._seconds = perf_counter() - started
        first: NDArray[np.float32] = self._logits[0]
        return first

    def settle(self) -> None:
        """Leave in the session what steps of one token would have left."""
        if self._logits is not None:
            self._session.account.several(len(self._proposal), self._right, self._seconds)
        if self._index is not None:
            self._session.truncate(len(self._index.tokens))
        self._proposal, self._right, self._logits = [], 0, None
