"""Sequence breakers of DRY: texts that no repetition extends over, as tokens of a vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

LONGEST_BREAKER = 40  # bytes of a breaker that count, as in llama.cpp
LONGEST_TAIL = 20  # tokens of a breaker after its first one
MOST_KEPT = 8  # lists of breakers that are kept for a tokenizer

Tail = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Breakers:
    """The tokens that breakers begin with."""

    starts: NDArray[np.bool_]
    """For each token whether a breaker begins in it."""
    tails: dict[int, frozenset[Tail]]
    """The tokens that complete a breaker after such a token; () if it contains a whole one."""

    def alone(self, token: int) -> bool:
        """Whether the token contains a breaker."""
        return () in self.tails.get(token, ())

    def reach(self, backwards: NDArray[np.int64]) -> int:
        """The number of tokens after the newest breaker; ``backwards``: the newest token first."""
        for place in np.flatnonzero(self.starts[backwards]).tolist():
            fitting = [
                len(tail)
                for tail in self.tails[int(backwards[place])]
                if len(tail) <= place
                and tail == tuple(backwards[place - len(tail) : place][::-1].tolist())
            ]
            if fitting:
                return int(place) - max(fitting)
        return len(backwards)


class _Words:
    """The bytes of all tokens of a vocabulary, one after the other."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        words = [word for word, _ in tokenizer.pieces()]
        if tokenizer.add_space_prefix:  # llama.cpp compares the text of each token alone
            words = [word.removeprefix(b" ") for word in words]
        self._bytes = np.frombuffer(b"".join(words), np.uint8)
        self._ends = np.cumsum([len(word) for word in words])
        self._starts = np.concatenate(([0], self._ends[:-1]))
        self.kept: OrderedDict[tuple[str, ...], Breakers] = OrderedDict()

    def breakers(self, tokenizer: Tokenizer, texts: Sequence[str], vocab_size: int) -> Breakers:
        """The breakers with these texts."""
        tails: dict[int, set[Tail]] = {}
        for text in texts:
            breaker = text.encode("utf-8", "replace")[:LONGEST_BREAKER]
            whole = set(self._containing(breaker))
            for token in whole:
                tails.setdefault(token, set()).add(())
            for length in range(1, len(breaker)):
                ending = set(self._ending(breaker[:length])) - whole
                if ending:
                    rest = breaker[length:].decode("utf-8", "replace")
                    tail = tuple(tokenizer.encode(rest, add_bos=False)[:LONGEST_TAIL])
                    for token in ending:
                        tails.setdefault(token, set()).add(tail)
        starts = np.zeros(max(len(self._ends), vocab_size), np.bool_)
        starts[list(tails)] = True
        return Breakers(starts, {token: frozenset(ends) for token, ends in tails.items()})

    def _containing(self, text: bytes) -> list[int]:
        """The tokens that contain ``text``."""
        places = np.flatnonzero(self._bytes[: len(self._bytes) - len(text) + 1] == text[0])
        for offset, byte in enumerate(text[1:], 1):
            places = places[self._bytes[places + offset] == byte]
        tokens = np.searchsorted(self._ends, places, side="right")
        return np.unique(tokens[places + len(text) <= self._ends[tokens]]).tolist()  # type: ignore[no-any-return]

    def _ending(self, text: bytes) -> list[int]:
        """The tokens that end with ``text``."""
        tokens = np.flatnonzero(self._ends - self._starts >= len(text))
        for offset, byte in enumerate(text):
            tokens = tokens[self._bytes[self._ends[tokens] - len(text) + offset] == byte]
        return tokens.tolist()


_words: WeakKeyDictionary[Tokenizer, _Words] = WeakKeyDictionary()
_lock = Lock()


def breakers_of(tokenizer: Tokenizer, texts: Sequence[str], vocab_size: int) -> Breakers:
    """The breakers of these texts for ids below ``vocab_size``; those used last are kept.

    Can take a second for the first request.
    """
    with _lock:
        words = _words.get(tokenizer)
        if words is None:
            words = _words[tokenizer] = _Words(tokenizer)
        key = tuple(texts)
        breakers = words.kept.pop(key, None) or words.breakers(tokenizer, key, vocab_size)
        words.kept[key] = breakers
        if len(words.kept) > MOST_KEPT:
            words.kept.popitem(last=False)
        return breakers
