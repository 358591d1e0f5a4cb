"""Cutting text at special tokens, before words are looked for."""

from __future__ import annotations

from dataclasses import dataclass

from trinity.tokenizers.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    matched_ids,
)

_WHITE_SPACE = " \t\n\v\f\r"  # C's isspace


@dataclass(frozen=True, slots=True)
class _Special:
    id: int
    text: str
    only_parsed: bool  # control and unknown tokens; user-defined ones are found in any text
    rstrip: bool


class SpecialTokens:
    """The special tokens of a vocabulary, longest text first. Immutable."""

    def __init__(self, vocab: Vocabulary) -> None:
        self._specials = [
            _Special(i, vocab.tokens[i], bool(vocab.types[i] != USER_DEFINED), i in vocab.rstrip)
            for i in matched_ids(vocab, (CONTROL, UNKNOWN, USER_DEFINED))
            if vocab.ids[vocab.tokens[i]] == i
        ]

    def partition(self, text: str, parse_special: bool) -> list[str | int]:
        """``text`` as a list of token ids and of the non-empty texts between them.

        The longest special token is looked for in the whole text, then the next longest in what
        is left. Control and unknown tokens count only with ``parse_special``.
        Source: llama.cpp src/llama-vocab.cpp, tokenizer_st_partition.
        """
        parts: list[str | int] = [text] if text else []
        for special in self._specials:
            if (parse_special or not special.only_parsed) and special.text in text:
                parts = [piece for part in parts for piece in _cut(part, special)]
        return parts


def _cut(part: str | int, special: _Special) -> list[str | int]:
    if isinstance(part, int):
        return [part]
    first, *rest = part.split(special.text)
    pieces: list[str | int] = [first] if first else []
    for after in rest:
        pieces.append(special.id)
        kept = after.lstrip(_WHITE_SPACE) if special.rstrip else after
        if kept:
            pieces.append(kept)
    return pieces
