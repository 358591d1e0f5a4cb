"""A tokenizer's vocabulary for llguidance: the bytes of each token, computed once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any

from trinity.errors import TrinityError
from trinity.grammar.library import llguidance
from trinity.grammar.trial import NotCompiledError, only_known
from trinity.tokenizers import Tokenizer

KEPT = 32  # compiled grammars
# Characters of the source texts of all compiled grammars. A compiled grammar takes up to 34 bytes
# for each of them (a long enum).
KEPT_CHARACTERS = 1 << 20
MARK = b"\xff"  # prefix of the name of a token without text; no text contains this byte


class GrammarVocabulary:
    """The tokens of a tokenizer, with llguidance's table of them.

    Control and unknown tokens are never part of a text: a grammar has to name them. The same holds
    for a user-defined token after which the vocabulary drops a space. Every other token stands for
    the bytes that it adds to a text.

    Attributes:
        size: number of tokens.
        ids: the tokens that a grammar may name, by their texts: control and user-defined ones.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        pieces = list(tokenizer.pieces())
        self.size = len(pieces)
        self.ids = {raw.decode(): i for i, (raw, is_plain) in enumerate(pieces) if not is_plain}
        drops = tokenizer.add_space_prefix
        marked = [
            MARK + raw if tokenizer.is_special(i) or (drops and not is_plain) else raw
            for i, (raw, is_plain) in enumerate(pieces)
        ]
        self._cutter = _Cutter(tokenizer, marked)
        self._ends = sorted(tokenizer.eog_ids)
        # A long text makes the tokenizer build its tables now instead of during a response.
        tokenizer.encode("a " * 1000, add_bos=False)
        self._matchers: dict[Hashable, tuple[Any, int]] = {}

    @cached_property
    def table(self) -> Any:
        """The LLTokenizer; a large vocabulary takes a second."""
        return llguidance().LLTokenizer(self._cutter, eos_token=self._ends or None)

    def matcher(
        self, key: Hashable, length: int, compiled: Callable[[Any, dict[str, int]], Any]
    ) -> Any:
        """Return a new matcher; ``compiled(table, ids)`` is called once per key.

        ``length`` is the length of the grammar's text in characters. Raises NotCompiledError.
        """
        newest, _ = self._matchers.pop(key, (None, 0))
        if newest is None:
            if only_known.get():
                raise NotCompiledError
            newest = compiled(self.table, self.ids)
        self._matchers[key] = newest, length  # the newest is the last
        characters = 0
        # A copy: requests come from several threads.
        for number, (old, (_, size)) in enumerate(reversed(list(self._matchers.items()))):
            characters += size
            if number >= KEPT or (number and characters > KEPT_CHARACTERS):
                self._matchers.pop(old, None)
        return newest.deep_copy()


class _Cutter:
    """The tokenizer's interface for llguidance: its tokens, and the ids of a forced text.

    It has only a weak reference to the tokenizer, because llguidance's table keeps it alive.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()  # they are marked already

    def __init__(self, tokenizer: Tokenizer, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self.eos_token_id = min(tokenizer.eog_ids, default=None)
        self._tokenizer = weakref.ref(tokenizer)

    def __call__(self, text: str) -> list[int]:
        """Tokenize a text; greedily by longest token if the tokenizer would change the text.

        Some vocabularies drop white space after a special token, or have no token for a character.
        """
        tokenizer = self._tokenizer()
        try:
            ids = tokenizer.encode(text, add_bos=False, continuation=True) if tokenizer else []
        except TrinityError:  # llguidance ignores the error
            ids = []
        if b"".join(self.tokens[i] for i in ids) == text.encode():
            return ids
        return self._greedy(text.encode())

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        return {raw: i for i, raw in enumerate(self.tokens) if not raw.startswith(MARK)}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)

    def _greedy(self, raw: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(raw):
            ends = range(min(len(raw), at + self._longest), at, -1)
            end = next((end for end in ends if raw[at:end] in self._by_bytes), None)
            if end is None:
                return ids  # a byte that no token has
            ids.append(self._by_bytes[raw[at:end]])
            at = end
        return ids


_known: weakref.WeakKeyDictionary[Tokenizer, GrammarVocabulary] = weakref.WeakKeyDictionary()


def vocabulary_of(tokenizer: Tokenizer) -> GrammarVocabulary:
    """Return a tokenizer's vocabulary; it is cached with the tokenizer. Raises NotCompiledError."""
    vocabulary = _known.get(tokenizer)
    if vocabulary is None:
        if only_known.get():
            raise NotCompiledError
        vocabulary = _known.setdefault(tokenizer, GrammarVocabulary(tokenizer))
    return vocabulary
