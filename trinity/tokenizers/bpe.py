"""BPE vocabularies, of bytes or of characters, run by the `tokenizers` library.

Byte-level vocabularies ("gpt2") cut a text into words, write their bytes as characters and merge
these. Gemma 4's vocabulary merges the characters of the whole text, with U+2581 for a space, and
writes a character without a token as its UTF-8 bytes, each a token "<0xNN>".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.errors import InputError, TokenizerError, TrinityError
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.pretokenizers import PreTokenizer
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import CONTROL, UNKNOWN, Vocabulary, made_by_merges

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# The regex engine gives up (and kills the call) after 10 million steps inside one match.
_LONGEST_WHITE_SPACE = 4_000_000
# Merges of a vocabulary whose tables take long, characters of a text that is worth them, and how
# many short texts are.
_LARGE, _LONG, _MANY = 20_000, 1000, 16
_MOST_PARTS = 200_000  # of the words of a short text, which are all looked up
# Words whose ids the library keeps. It would keep them for each model and thread until the thread
# ends, even after the model is gone and after ``_clear_cache`` in that thread: 1.5 MB per model.
# With 10,000 words, 50 KB of text take a third longer when they are new, 20 % longer after another
# text, and 15 % less time when they are encoded again.
CACHED_WORDS = 0
_FREE = 1 << 14  # most characters encoded while the interpreter lock is held: about 20 ms
_PIECE = 1 << 16  # characters that are looked at together
# After the encoding of a long text, reading its ids and freeing the library's result hold the
# interpreter lock, for 45 ms and 15 ms per 2 million tokens. Seconds between them for others.
_LONG_TEXT, _REST = 1 << 18, 0.005


def _byte_characters() -> dict[int, str]:
    """Return the character of each byte in tokens and merges. Source: GPT-2's encoder.py."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()
_CHARACTER_BYTES = {character: byte for byte, character in BYTE_CHARACTERS.items()}


class BPEEncoder:
    """Converts text without special tokens to ids. Usable from several threads at once.

    The library takes a third of a second to build the tables of a large vocabulary. For a short
    text, a model of only the tokens and merges that can occur in it is built instead. The whole
    model is built for a long text, or after many short ones.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        assert vocab.merges is not None
        self._ids, self._merges = vocab.ids, vocab.merges
        self._ignore_merges = vocab.pre is not None and vocab.pre.ignore_merges
        # A control token whose text is also a word must not come out of plain text, unless it has
        # one character or merges make it.
        texts = [vocab.tokens[i] for i in np.flatnonzero(np.isin(vocab.types, (CONTROL, UNKNOWN)))]
        texts = [text for text in texts if len(text) > 1]
        self._no_words = frozenset(() if made_by_merges(texts, vocab.merges) else texts)
        self._splitter = None if vocab.pre is None else _splitter(vocab.pre)
        # In a vocabulary of characters: tokens of bytes and the unknown token, by text. They stand
        # for characters without a token.
        self._fallback: dict[str, int] = {}
        self._unknown: str | None = None
        if self._splitter is None:
            texts = [f"<0x{byte:02X}>" for byte in range(256)]
            self._fallback = {text: self._ids[text] for text in texts if text in self._ids}
            if vocab.unk_id is not None:
                self._unknown = vocab.tokens[vocab.unk_id]
                self._fallback[self._unknown] = vocab.unk_id
        self._longest = max(map(len, vocab.tokens))
        self._parts = 0
        self._whole: Tokenizer | None = None
        if len(vocab.merges) < _LARGE:
            self._whole = self._make_whole()

    def _make_whole(self) -> Tokenizer:
        words = {text: i for text, i in self._ids.items() if text not in self._no_words}
        refuse_long_merges(words, self._merges)
        try:
            return self._make(words, split_merges(self._merges))
        except TokenizerError:
            for rank, merge in enumerate(self._merges):
                _split_merge(merge, rank)  # raises an error that shows the malformed merge
            raise

    def _make(self, words: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
        from tokenizers import Tokenizer, models

        with refusals("tokenizer.ggml.merges does not fit the tokens"):
            made = Tokenizer(
                models.BPE(
                    words | self._fallback, merges, cache_capacity=CACHED_WORDS,
                    ignore_merges=self._ignore_merges, byte_fallback=bool(self._fallback),
                    unk_token=self._unknown, fuse_unk=True,
                )
            )  # fmt: skip
            if self._splitter is not None:
                made.pre_tokenizer = self._splitter
        return made

    def _make_part(self, text: str) -> Tokenizer | None:
        """Return a model that gives ``text`` the same ids, or None to use the whole model."""
        if self._parts >= _MANY or len(text) > _LONG:
            return None
        pieces = {text}
        if self._splitter is not None:
            pieces = {piece for piece, _ in self._splitter.pre_tokenize_str(text)}
        if sum(len(piece) * min(len(piece), self._longest) for piece in pieces) > _MOST_PARTS:
            return None
        self._parts += 1
        within = {
            piece[first:last]
            for piece in pieces
            for first in range(len(piece))
            for last in range(first + 1, min(first + self._longest, len(piece)) + 1)
        }
        words = {t: i for t in within - self._no_words if (i := self._ids.get(t)) is not None}
        cuts = ((word[:cut], word[cut:]) for word in words for cut in range(1, len(word)))
        possible = {f"{a} {b}": (a, b) for a, b in cuts if a in words and b in words}
        # In their order, the first of equal ones.
        ranked = dict.fromkeys(merge for merge in self._merges if merge in possible)
        return self._make(words, [possible[merge] for merge in ranked])

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; a byte without a token is dropped or becomes unknown.

        Raises InputError for millions of white space characters in a row.
        """
        if self._splitter is None:
            text = text.replace(" ", SPACE)
        else:
            refuse_white_space(text)
        tokenizer = self._whole or self._make_part(text)
        if tokenizer is None:
            tokenizer = self._whole = self._make_whole()
        with refusals("the tokenizers library cannot encode the text"):
            return library_ids(tokenizer, text)


def library_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the library's ids of a text, without BOS and EOS."""
    if len(text) <= _FREE:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    else:  # only this call releases the interpreter lock
        encodings = tokenizer.encode_batch_fast([text], add_special_tokens=False)
        rest = _REST if len(text) > _LONG_TEXT else 0.0
        time.sleep(rest)
        ids = encodings[0].ids
        time.sleep(rest)
        del encodings
        time.sleep(rest)
    return ids


def library_encoding(tokenizer: Tokenizer, text: str) -> Encoding:
    """Return the library's encoding of a text with offsets, without BOS and EOS."""
    if len(text) <= _FREE:
        return tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.encode_batch([text], add_special_tokens=False)[0]  # releases the lock


def refuse_white_space(text: str) -> None:
    """Raise InputError for more white space in a row than the library's regexes can match."""
    # A longer run covers one of these places; searching the whole text holds the interpreter lock.
    places = range(_LONGEST_WHITE_SPACE, len(text), _LONGEST_WHITE_SPACE)
    longest = max((_white_space_at(text, place) for place in places), default=0)
    if longest > _LONGEST_WHITE_SPACE:
        raise InputError(
            f"the text has {longest} white space characters in a row; at most"
            f" {_LONGEST_WHITE_SPACE} can be tokenized: shorten the run"
        )


def _white_space_at(text: str, place: int) -> int:
    """Return the length of the run of white space around ``place``."""
    if not text[place].isspace():
        return 0
    first, last = place, place
    while first > 0 and text[max(0, first - _PIECE) : first].isspace():
        first = max(0, first - _PIECE)
    while last < len(text) and text[last : last + _PIECE].isspace():
        last += _PIECE
    before, after = text[max(0, first - _PIECE) : first], text[last : last + _PIECE]
    first -= len(before) - len(before.rstrip())
    return min(last, len(text)) - first + len(after) - len(after.lstrip())


def refuse_long_merges(words: Mapping[str, int], merges: Sequence[str]) -> None:
    """Raise TokenizerError for a merge that is longer than any token: the library would panic."""
    longest = max(map(len, map(str.encode, words)), default=0)
    if max(map(len, map(str.encode, merges)), default=0) > longest + 1:
        merge = next(m for m in merges if len(m.encode()) > longest + 1)
        raise TokenizerError(
            f"tokenizer.ggml.merges does not fit the tokens: {merge[:40]!r} makes more than the"
            f" longest has, {longest} bytes; {RECONVERT}"
        )


def _splitter(pre: PreTokenizer) -> Any:
    """Return the library's pre-tokenizer, which cuts a text into words and writes their bytes."""
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(regex), "isolated") for regex in pre.regexes),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn errors of the library into a TokenizerError: Exceptions, and panics of Rust.

    A panic is a PanicException, which is not an Exception; each library has a class of its own.
    """
    try:
        yield
    except TrinityError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {str(error)[:200]}; {RECONVERT}") from error


def bpe_piece(vocab: Vocabulary, token_id: int) -> bytes:
    """Return the bytes of a token that is neither control nor user-defined.

    A character that is not the code of a byte, which should not occur, is encoded as UTF-8.
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


def split_merges(merges: list[str]) -> list[tuple[str, str]]:
    """Split each merge at its first space, except for a leading one."""
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
