"""Byte-level BPE vocabularies, run by the `tokenizers` library."""

from __future__ import annotations

import re
from itertools import repeat

import numpy as np

from trinity.errors import InputError, TokenizerError
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.vocabulary import CONTROL, UNKNOWN, Vocabulary

# The regex engine gives up (and kills the call) after 10 million steps inside one match.
_LONGEST_WHITE_SPACE = 4_000_000


def _byte_characters() -> dict[int, str]:
    """The character that stands for each byte in tokens and merges. Source: GPT-2's encoder.py."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
_CHARACTER_BYTES = {character: byte for byte, character in BYTE_CHARACTERS.items()}


class BPEEncoder:
    """Text without special tokens to ids. Usable from several threads at once."""

    def __init__(self, vocab: Vocabulary) -> None:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers

        assert vocab.merges is not None
        assert vocab.pre is not None
        # A control token whose text is also a word must not come out of plain text.
        words = dict(vocab.ids)
        for i in np.flatnonzero(np.isin(vocab.types, (CONTROL, UNKNOWN))).tolist():
            if len(vocab.tokens[i]) > 1:
                words.pop(vocab.tokens[i], None)
        merges = _split_merges(vocab.merges)
        ignore_merges = vocab.pre.ignore_merges
        try:
            try:
                model = models.BPE(words, merges, ignore_merges=ignore_merges)
            except Exception:  # merges that make a control token
                model = models.BPE(vocab.ids, merges, ignore_merges=ignore_merges)
        except Exception as error:  # the library raises plain Exception
            for rank, merge in enumerate(vocab.merges):
                _split_merge(merge, rank)
            raise TokenizerError(
                f"tokenizer.ggml.merges does not fit the tokens: {error}; {RECONVERT}"
            ) from error
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(regex), "isolated") for regex in vocab.pre.regexes),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``; a byte that is no token is dropped.

        Raises InputError for millions of white space characters in a row.
        """
        if len(text) > _LONGEST_WHITE_SPACE:
            longest = max((len(m[0]) for m in re.finditer(r"\s+", text)), default=0)
            if longest > _LONGEST_WHITE_SPACE:
                raise InputError(
                    f"the text has {longest} white space characters in a row; at most"
                    f" {_LONGEST_WHITE_SPACE} can be tokenized: shorten the run"
                )
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def bpe_piece(vocab: Vocabulary, token_id: int) -> bytes:
    """The bytes that a token that is neither control nor user-defined stands for.

    A character that stands for no byte, which no such token should have, is taken literally.
    """
    byte = vocab.byte_of(token_id)
    if byte is not None:
        return bytes((byte,))
    token = vocab.tokens[token_id]
    try:
        return bytes([_CHARACTER_BYTES[character] for character in token])
    except KeyError:
        parts = ((_CHARACTER_BYTES.get(c), c) for c in token)
        return b"".join(c.encode() if b is None else bytes((b,)) for b, c in parts)


def _split_merges(merges: list[str]) -> list[tuple[str, str]]:
    """The two sides of each merge, cut at the first space that is not its first character."""
    pairs: list[tuple[str, str]] = list(map(tuple, map(str.split, merges, repeat(" "))))  # type: ignore[arg-type]
    if set(map(len, pairs)) - {2}:
        pairs = [_split_merge(merge, rank) for rank, merge in enumerate(merges)]
    if len(set(merges)) < len(merges):  # the first of equal merges has the rank that counts
        pairs = list(dict.fromkeys(pairs))
    return pairs


def _split_merge(merge: str, rank: int) -> tuple[str, str]:
    cut = merge.find(" ", 1)
    if cut < 0 or cut == len(merge) - 1:
        raise TokenizerError(
            f"tokenizer.ggml.merges: merge {rank} is {merge[:40]!r}, not two tokens with a space"
            f" between them; {RECONVERT}"
        )
    return merge[:cut], merge[cut + 1 :]
