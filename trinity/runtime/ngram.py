"""What may come next in a text that repeats itself: the continuation of its end's last occurrence.

Source of the idea: prompt lookup decoding (Saxena 2023). A text that quotes, summarizes or edits
its prompt can be guessed from it without a second model.
"""

from __future__ import annotations

from collections.abc import Sequence

# Lengths of the n-grams that are looked up, the longest first, for it is right most often.
SIZES = (16, 6, 3)


class NgramIndex:
    """A growing sequence of tokens, and for each n-gram in it what came after it last."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)
        count = len(self.tokens)
        self._after: list[tuple[int, dict[tuple[int, ...], int]]] = []
        for size in SIZES:
            grams = zip(*(self.tokens[i:] for i in range(size)), strict=False)
            # The last n-gram has nothing after it yet, and later ones replace earlier ones.
            self._after.append((size, dict(zip(grams, range(size, count), strict=False))))
        self._ends = [tuple(self.tokens[-size:]) for size in SIZES]

    def append(self, token: int) -> None:
        """Add a token at the end."""
        tokens, ends = self.tokens, self._ends
        at = len(tokens)
        tokens.append(token)
        for i, (size, after) in enumerate(self._after):
            if at >= size:
                after[ends[i]] = at
            ends[i] = tuple(tokens[-size:])

    def match(self) -> tuple[int, int]:
        """The size of the longest known n-gram at the end, and where it went on; or zeros."""
        for (size, after), end in zip(self._after, self._ends, strict=True):
            start = after.get(end)
            if start is not None:
                return size, start
        return 0, 0

    def continuation(self, start: int, count: int) -> list[int]:
        """``count`` tokens from ``start`` on; what reaches the end goes on with itself."""
        found = self.tokens[start : start + count]
        period = len(self.tokens) - start
        while len(found) < count:
            found.append(found[-period])
        return found
