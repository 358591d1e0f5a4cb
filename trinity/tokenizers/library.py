"""Tokenize texts with the `tokenizers` library and all rules of a tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trinity.errors import TokenizerError
from trinity.tokenizers.bpe import (
    CACHED_WORDS,
    library_encoding,
    library_ids,
    refusals,
    refuse_long_merges,
    refuse_white_space,
    split_merges,
)
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.rules import Rules, steps
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import NORMAL, UNUSED, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class LibraryEncoder:
    """Converts text with special tokens to ids. Usable from several threads at once."""

    def __init__(self, vocab: Vocabulary, rules: Rules) -> None:
        self._rules = rules
        self._added = frozenset(token.id for token in rules.added_tokens)
        self._made: dict[tuple[bool, bool], Tokenizer] = {}
        with refusals("the tokenizer's vocabulary does not fit its rules"):
            self._model = _MODELS[vocab.model](vocab, rules)
            self._check_ids(self._tokenizer(True, True))

    def encode(self, text: str, *, parse_special: bool, continuation: bool) -> list[int]:
        """Return the ids of ``text``; with ``continuation`` no space is put before its first word.

        Raises InputError for millions of white space characters in a row, TokenizerError if the
        library fails.
        """
        refuse_white_space(text)
        with refusals("the tokenizers library cannot encode the text"):
            tokenizer = self._tokenizer(parse_special, True)
            if not continuation:
                return library_ids(tokenizer, text)
            plain = self._tokenizer(parse_special, False)
            whole = library_encoding(tokenizer, text)
            added = (i for i, token in enumerate(whole.ids) if token in self._added)
            first = next(added, None)
            if first is None:
                return library_ids(plain, text)
            begin = whole.offsets[first][0]
            return library_ids(plain, text[:begin]) + whole.ids[first:]

    def _tokenizer(self, special: bool, prefix: bool) -> Tokenizer:
        made = self._made.get((special, prefix))
        return made or self._made.setdefault((special, prefix), self._make(special, prefix))

    def _make(self, special: bool, prefix: bool) -> Tokenizer:
        from tokenizers import AddedToken, Tokenizer

        read = Tokenizer.from_str(json.dumps(_empty(self._rules, prefix)))
        made = Tokenizer(self._model)
        if read.normalizer is not None:
            made.normalizer = read.normalizer
        if read.pre_tokenizer is not None:
            made.pre_tokenizer = read.pre_tokenizer
        made.add_tokens(
            [
                AddedToken(
                    token.content, single_word=token.single_word, lstrip=token.lstrip,
                    rstrip=token.rstrip, normalized=token.normalized, special=token.special,
                )
                for token in self._rules.added_tokens
            ]
        )  # fmt: skip
        made.encode_special_tokens = not special
        return made

    def _check_ids(self, tokenizer: Tokenizer) -> None:
        """Check the ids of added tokens: the library numbers them by their order in the file."""
        for token in self._rules.added_tokens:
            number = tokenizer.token_to_id(token.content)
            if number != token.id:
                raise TokenizerError(
                    f"the added token {token.content!r:.60} has the id {token.id} in the file, "
                    f"but {number} in the tokenizers library; {RECONVERT}"
                )


def _empty(rules: Rules, prefix: bool) -> dict[str, object]:
    """Return a tokenizer.json with the steps of ``rules`` and no vocabulary.

    Without ``prefix``, steps that put a space before the text are omitted.
    """
    normalizer = [s for s in steps(rules.normalizer) if prefix or s.get("type") != "Prepend"]
    splitter = [s if prefix else _unprefixed(s) for s in steps(rules.pre_tokenizer)]
    return {
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": normalizer} if normalizer else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitter} if splitter else None,
        "model": {"type": "BPE", "vocab": {}, "merges": []},
        "added_tokens": [],
        "post_processor": None,
        "decoder": None,
    }


def _unprefixed(step: Mapping[str, object]) -> dict[str, object]:
    if step.get("type") == "Metaspace":
        return {**step, "prepend_scheme": "never", "add_prefix_space": False}
    if step.get("type") == "ByteLevel":
        return {**step, "add_prefix_space": False}
    return dict(step)


def _words(vocab: Vocabulary, rules: Rules, written: Callable[[str], str] = str) -> dict[str, int]:
    """Return the model's own vocabulary; ``written`` writes a normal token for tokenizer.json."""
    added = {token.id: token for token in rules.added_tokens}
    words: dict[str, int] = {}
    for i, (text, kind) in enumerate(zip(vocab.tokens, vocab.types.tolist(), strict=True)):
        token = added.get(i)
        if token is not None:
            if token.in_model:
                words[token.content] = i
        elif (
            kind != UNUSED or text != f"[PAD{i}]"
        ):  # such a token only fills a row of the embedding
            words[written(text) if kind == NORMAL else text] = i
    return words


def _bpe(vocab: Vocabulary, rules: Rules) -> Any:
    from tokenizers import models

    if vocab.merges is None:
        raise TokenizerError(f"tokenizer.ggml.merges is missing; {RECONVERT}")
    words = _words(vocab, rules)
    unknown = _text(rules.model, "unk_token")
    fuses, falls_back, ignores = (
        rules.model.get(name) is True for name in ("fuse_unk", "byte_fallback", "ignore_merges")
    )
    refuse_long_merges(words, vocab.merges)
    return models.BPE(
        words, split_merges(vocab.merges), cache_capacity=CACHED_WORDS, unk_token=unknown,
        fuse_unk=fuses, byte_fallback=falls_back, ignore_merges=ignores,
    )  # fmt: skip


def _wordpiece(vocab: Vocabulary, rules: Rules) -> Any:
    from tokenizers import models

    longest = rules.model.get("max_input_chars_per_word", 100)
    return models.WordPiece(
        _words(vocab, rules, _word),
        unk_token=_text(rules.model, "unk_token") or "[UNK]",
        max_input_chars_per_word=longest if isinstance(longest, int) else 100,
    )


def _word(text: str) -> str:
    """Return a WordPiece token as in its own files."""
    return text.removeprefix(SPACE) if text.startswith(SPACE) else "##" + text


def _unigram(vocab: Vocabulary, rules: Rules) -> Any:
    from tokenizers import models

    assert vocab.scores is not None
    words = _words(vocab, rules)
    if sorted(words.values()) != list(range(len(words))):
        raise TokenizerError(f"the ids of the Unigram model have gaps; {RECONVERT}")
    pieces = sorted(words.items(), key=lambda item: item[1])
    return models.Unigram(
        [(text, float(vocab.scores[i])) for text, i in pieces],
        vocab.unk_id if isinstance(rules.model.get("unk_id"), int) else None,
        rules.model.get("byte_fallback") is True,
    )


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) else None


_MODELS: dict[str, Callable[[Vocabulary, Rules], Any]] = {
    "gpt2": _bpe, "llama": _bpe, "gemma4": _bpe, "bert": _wordpiece, "t5": _unigram,
}  # fmt: skip
