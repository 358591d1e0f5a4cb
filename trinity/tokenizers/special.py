"""Cut text at special tokens, before it is split into words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.tokenizers.vocabulary import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary, matched_ids

_WHITE_SPACE = b" \t\n\v\f\r"  # C's isspace
_TAKEN = b"\xff"  # a byte that no text has
# Up to this number of tokens, or tokens times characters, each is searched; beyond, one search for
# each length costs less.
_FEW, _FEW_SEARCHES = 128, 1 << 22
_BLOCK = 1 << 16  # bytes searched at once: NumPy's look-ups hold the interpreter lock
# A fingerprint is the polynomial of the bytes, modulo 2^64, at a base that no file can know. Its
# first bits are looked up.
_BASE, _BITS = int.from_bytes(os.urandom(8)) | 1, 16


class _Special(NamedTuple):
    id: int
    text: str
    raw: bytes
    rstrip: bool


class SpecialTokens:
    """The special tokens of a vocabulary, longest text first. Immutable."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._all: list[_Special] = []
        self._user_defined: list[_Special] = []  # found in any text; the others only on request
        for i in matched_ids(vocab, (CONTROL, UNKNOWN, USER_DEFINED)):
            text = vocab.tokens[i]
            if vocab.ids[text] == i:
                special = _Special(i, text, text.encode(), i in vocab.rstrip)
                self._all.append(special)
                if vocab.types[i] == USER_DEFINED:
                    self._user_defined.append(special)

    def partition(self, text: str, parse_special: bool) -> list[str | int]:
        """Split ``text`` into token ids and the non-empty texts between them.

        The longest special token is searched in the whole text, then the next longest in the rest.
        Control and unknown tokens are found only with ``parse_special``. The time is bounded by the
        text's length times the number of different token lengths.
        Source: llama.cpp src/llama-vocab.cpp, tokenizer_st_partition.
        """
        specials = self._all if parse_special else self._user_defined
        if len(specials) > _FEW and len(specials) * len(text) > _FEW_SEARCHES:
            cuts = _Cuts(text)
            cuts.make_by_length(specials)
            return cuts.parts()
        specials = [special for special in specials if special.text in text]
        if not specials:
            return [text] if text else []
        cuts = _Cuts(text)
        for special in specials:
            cuts.make(special, cuts.places_of(special))
        return cuts.parts()


class _Cuts:
    """The cuts of a text, in UTF-8 bytes: no character occurs inside another."""

    def __init__(self, text: str) -> None:
        self._raw = text.encode()
        self._free = bytearray(self._raw)  # cut parts are overwritten
        # The first byte, the end and the id of each cut; a cut without an id is dropped.
        self._cuts: list[tuple[int, int, int | None]] = []

    def places_of(self, special: _Special) -> Iterator[int]:
        """Yield where the token begins in the parts that are still free."""
        place = self._free.find(special.raw)
        while place >= 0:
            yield place
            place = self._free.find(special.raw, place + len(special.raw))

    def make_by_length(self, specials: Sequence[_Special]) -> None:
        """Cut at all tokens, which are sorted, with one search per length."""
        powers = _powers(_BASE, len(self._raw))
        inverses = _powers(pow(_BASE, -1, 1 << 64), len(self._raw))
        sums = self._sums(powers)
        for length, group in groupby(specials, key=lambda special: len(special.raw)):
            if length > len(self._raw):
                continue
            known = {special.raw: special for special in group}
            wanted = np.zeros(1 << _BITS, np.bool_)
            wanted[_fingerprints(list(known), powers[:length])] = True
            places: dict[bytes, list[int]] = {}
            count = len(sums) - length
            for first in range(0, count, _BLOCK):
                end = min(first + _BLOCK, count)
                windows = sums[first + length : end + length] - sums[first:end]
                windows *= inverses[first:end]
                for place in (np.flatnonzero(wanted[_first_bits(windows)]) + first).tolist():
                    raw = bytes(self._free[place : place + length])
                    if raw in known:
                        places.setdefault(raw, []).append(place)
            for raw in known if places else ():
                if raw in places:
                    self.make(known[raw], places[raw])
            if places:
                sums = self._sums(powers)

    def _sums(self, powers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the sums of the bytes before each index, each times its power."""
        sums = np.zeros(len(self._free) + 1, np.uint64)
        np.cumsum(np.frombuffer(bytes(self._free), np.uint8) * powers, out=sums[1:])
        return sums

    def make(self, special: _Special, places: Iterable[int]) -> None:
        """Cut at ``places``, from left to right, if the token is still free there."""
        length, ends = len(special.raw), []
        for place in places:
            if self._free.startswith(special.raw, place):
                self._take(place, place + length, special.id)
                ends.append(place + length)
        for end in ends if special.rstrip else ():
            white = end
            while white < len(self._free) and self._free[white] in _WHITE_SPACE:
                white += 1
            if white > end:
                self._take(end, white, None)

    def _take(self, first: int, end: int, token: int | None) -> None:
        self._free[first:end] = _TAKEN * (end - first)
        self._cuts.append((first, end, token))

    def parts(self) -> list[str | int]:
        """Return ids and the texts between them, in order."""
        parts: list[str | int] = []
        last = 0
        for first, end, token in sorted(self._cuts, key=lambda cut: cut[0]):
            if first > last:
                parts.append(self._raw[last:first].decode())
            if token is not None:
                parts.append(token)
            last = end
        if last < len(self._raw):
            parts.append(self._raw[last:].decode())
        return parts


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """Return the powers of ``base`` from 0 on, modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers)


def _fingerprints(texts: list[bytes], powers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the first bits of the fingerprints of texts as long as ``powers``."""
    rows = max(1, (1 << 17) // len(powers))  # whose bytes become 64-bit numbers at a time
    pieces = [
        np.frombuffer(b"".join(texts[i : i + rows]), np.uint8).reshape(-1, len(powers)) @ powers
        for i in range(0, len(texts), rows)
    ]
    return _first_bits(np.concatenate(pieces))


def _first_bits(fingerprints: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return fingerprints >> np.uint64(64 - _BITS)
