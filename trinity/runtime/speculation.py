"""Guesses: proposed tokens are evaluated in one step with the token before them.

A step of a few tokens reads the weights once, so it costs less than as many steps of one. What a
proposal's logits choose is chosen as ever, by the sampler, one token after the other; only where
the chosen token is the proposed one its logits are there already. So the text is the same as
without, to the last bit of every logit, and a wrong proposal costs time alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from trinity.runtime.account import Account
from trinity.runtime.ngram import NgramIndex


class Guesses:
    """What may come next in one text, and how often that was right."""

    def __init__(self) -> None:
        self._index: NgramIndex | None = None
        self._size = 0  # of the n-gram that the newest guess follows
        self._guess: list[int] = []
        self._at = 0  # the guess's place in the text

    def propose(self, tokens: Sequence[int], account: Account, most: int) -> list[int]:
        """What to evaluate after ``tokens``, at most ``most`` tokens, if it is worth its price."""
        if self._index is None:
            self._index = NgramIndex(tokens)
        index = self._index
        self._learn(tokens, account)
        for token in tokens[len(index.tokens) :]:
            index.append(token)
        size, start = index.match()
        count = account.proposals(size, most) if size else 0
        # One that is not evaluated still shows how reliable such proposals are.
        self._guess = index.continuation(start, max(count, 1)) if size else []
        self._size, self._at = size, len(tokens)
        return self._guess[:count]

    def _learn(self, tokens: Sequence[int], account: Account) -> None:
        """Compare the newest guess with what came."""
        came = tokens[self._at : self._at + len(self._guess)]
        if not came:
            return
        pairs = zip(self._guess, came, strict=False)
        right = next((i for i, (guess, token) in enumerate(pairs) if guess != token), len(came))
        account.learn(self._size, right, right < len(self._guess))
