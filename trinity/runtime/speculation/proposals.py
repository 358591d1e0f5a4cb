"""Speculation: proposed tokens are computed in one step with the token before them.

A step of a few tokens reads the weights once, so it costs less than as many steps of one token. The
sampler chooses each token as usual; if the chosen token equals the proposed one, the logits after
it are already there. The text is therefore the same as without speculation, to the last bit of
every logit, and a wrong proposal costs only time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from trinity.runtime.speculation.budget import SpeculationBudget

# Lengths of the n-grams that are looked up, longest first: long matches are right most often.
SIZES = (16, 6, 3)
MOST_INDEXED = 2048  # tokens indexed before each step; other requests wait meanwhile

# Drafts up to a number of tokens; the callable decides by a token's probability whether to go on.
Draft = Callable[[int, Callable[[float], bool]], list[int]]


class NgramIndex:
    """A growing sequence of tokens, and what last followed each n-gram in it."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)
        count = len(self.tokens)
        self._after: list[tuple[int, dict[tuple[int, ...], int]]] = []
        for size in SIZES:
            grams = zip(*(self.tokens[i:] for i in range(size)), strict=False)
            # The last n-gram has no continuation yet, and later ones replace earlier ones.
            self._after.append((size, dict(zip(grams, range(size, count), strict=False))))
        self._ends = [tuple(self.tokens[-size:]) for size in SIZES]

    def append(self, token: int) -> None:
        """Append a token."""
        tokens, ends = self.tokens, self._ends
        position = len(tokens)
        tokens.append(token)
        for i, (size, after) in enumerate(self._after):
            if position >= size:
                after[ends[i]] = position
            ends[i] = tuple(tokens[-size:])

    def match(self) -> tuple[int, int]:
        """The length of the longest known n-gram at the end, and the position after its last
        occurrence; zeros without one.
        """
        for (size, after), end in zip(self._after, self._ends, strict=True):
            start = after.get(end)
            if start is not None:
                return size, start
        return 0, 0

    def continuation(self, start: int, count: int) -> list[int]:
        """``count`` tokens from ``start`` on; a continuation past the end repeats itself."""
        tokens = self.tokens[start : start + count]
        period = len(self.tokens) - start
        while len(tokens) < count:
            tokens.append(tokens[-period])
        return tokens


class Proposer:
    """Proposes tokens for one text, and learns how often proposals were right."""

    def __init__(self) -> None:
        self._index: NgramIndex | None = None
        self._size = 0  # the length of the n-gram that the newest proposal follows
        self._proposal: list[int] = []
        self._at = 0  # the position of the proposal in the text
        self._believed: list[float] = []  # its probabilities, if the drafting layer made it

    def propose(
        self,
        tokens: Sequence[int],
        budget: SpeculationBudget,
        most: int,
        draft: Draft | None = None,
    ) -> list[int]:
        """The tokens to compute after ``tokens``, at most ``most``, if they are worth their cost.

        They continue an earlier occurrence of the text's end, or come from ``draft``, whichever
        promises more.
        """
        if self._index is None:
            self._index = NgramIndex(())
        index = self._index
        self._learn(tokens, budget)
        known = len(index.tokens)
        for token in tokens[known : known + MOST_INDEXED]:
            index.append(token)
        size, start = index.match() if len(index.tokens) == len(tokens) else (0, 0)
        count, rate = budget.proposals(size, most) if size else (0, 1.0)
        self._believed = []
        if draft is not None:
            number, promised = budget.drafts(most)
            if number and promised > rate:
                return self._drafted(tokens, budget, draft, number)
        # A proposal that is not computed still shows how reliable such proposals are.
        self._proposal = index.continuation(start, max(count, 1)) if size else []
        self._size, self._at = size, len(tokens)
        return self._proposal[:count]

    def _drafted(
        self, tokens: Sequence[int], budget: SpeculationBudget, draft: Draft, most: int
    ) -> list[int]:
        began, run = perf_counter(), budget.run()
        self._proposal = draft(most, run.wants)
        budget.drafted(run.looked, perf_counter() - began)
        self._believed, self._at = run.believed, len(tokens)
        return self._proposal

    def _learn(self, tokens: Sequence[int], budget: SpeculationBudget) -> None:
        """Compare the newest proposal with the tokens that came."""
        came = tokens[self._at : self._at + len(self._proposal)]
        if not came:
            return
        pairs = zip(self._proposal, came, strict=False)
        right = next((i for i, (guess, token) in enumerate(pairs) if guess != token), len(came))
        wrong = right < len(came)
        if self._believed:
            budget.learn_draft(self._believed, right, wrong)
        else:
            budget.learn(self._size, right, right < len(self._proposal))
