"""tokenizer.json with byte-level BPE: GGUF's "gpt2" model.

Source: llama.cpp convert_hf_to_gguf.py, get_vocab_base; the format is that of the `tokenizers`
library.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from trinity.tools.convert.pre_tokenizer import (
    TELLING_TEXT,
    name_by_ids,
    pre_tokenizer_name,
    unknown,
)
from trinity.tools.convert.reference import json_reference
from trinity.tools.convert.vocabulary_source import (
    ADDED_SCORE,
    CHECK_TEXT,
    VocabularySource,
    added_kind,
)


def bpe_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """The vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError for another kind of tokenizer, TokenizerError for a malformed one.
    """
    model = values.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise UnsupportedError(
            f"{path}: a tokenizer of type {kind!r:.40}; trinity converts byte-level BPE and "
            "SentencePiece's BPE"
        )
    _check_plain(values, model, path)
    ignore_merges = model.get("ignore_merges") is True
    merges = merges_of(model, path)
    reference = json_reference(values, path, (CHECK_TEXT, TELLING_TEXT))
    source = VocabularySource(path, "gpt2", rows, [], [], reference, merges=merges)
    read_vocab(model.get("vocab"), source)
    description = values.get("pre_tokenizer")
    source.pre = pre_tokenizer_name(description, ignore_merges)
    if source.pre is None:
        source.pre = name_by_ids(source, merges, ignore_merges)
    if source.pre is None:
        raise unknown(description, ignore_merges, path)
    read_added_tokens(values, source)
    return source


def _check_plain(values: Mapping[str, object], model: Mapping[str, object], path: str) -> None:
    """Raises UnsupportedError for what GGUF's "gpt2" model cannot say."""
    normalizer = values.get("normalizer")
    # Composed characters are what texts have anyway; llama.cpp passes over NFC too.
    if normalizer is not None and normalizer != {"type": "NFC"}:
        raise UnsupportedError(
            f"{path}: a tokenizer that normalizes text by {normalizer!r:.200}; GGUF has no "
            "place for that"
        )
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise UnsupportedError(
                f"{path}: BPE with {key} {model[key]!r:.40}; trinity converts byte-level BPE"
            )


def merges_of(model: Mapping[str, object], path: str) -> list[str]:
    """As "left right", whichever of its two forms the file has."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise TokenizerError(f"{path}: model.merges is no list; download it again")
    texts: list[str] = []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(side, str) and side and " " not in side for side in pair)
        ):
            raise TokenizerError(
                f"{path}: model.merges has {merge!r:.60}, not two tokens; download it again"
            )
        texts.append(" ".join(pair))
    return texts


def read_vocab(vocab: object, source: VocabularySource) -> None:
    """The tokens of model.vocab, all of them normal ones for now."""
    if not isinstance(vocab, dict) or not vocab:
        raise TokenizerError(f"{source.source}: model.vocab is missing or empty")
    ids = list(vocab.values())
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise TokenizerError(f"{source.source}: model.vocab has ids that are no whole numbers")
    if len(set(ids)) < len(ids):
        raise TokenizerError(f"{source.source}: model.vocab has ids that repeat")
    source.check_id(max(ids))
    source.tokens = [None] * (max(ids) + 1)
    source.types = [UNUSED] * len(source.tokens)
    for token, token_id in vocab.items():
        source.tokens[token_id], source.types[token_id] = token, NORMAL


def read_added_tokens(values: Mapping[str, object], source: VocabularySource) -> None:
    """The added_tokens of a tokenizer.json."""
    added = values.get("added_tokens") or []
    if not isinstance(added, list):
        raise TokenizerError(f"{source.source}: added_tokens is no list; download it again")
    for token in added:
        fields = token if isinstance(token, dict) else {}
        put_added(fields.get("id"), fields, source)


def put_added(token_id: object, fields: Mapping[str, object], source: VocabularySource) -> None:
    """One added token: its id, its content and whether it is special."""
    text = fields.get("content")
    if not isinstance(text, str) or not isinstance(token_id, int) or isinstance(token_id, bool):
        raise TokenizerError(
            f"{source.source}: an added token is {dict(fields)!r:.100}; expected content and id"
        )
    if token_id < 0:
        raise TokenizerError(f"{source.source}: the added token {text!r:.60} has the id {token_id}")
    source.check_id(token_id)
    kind = added_kind(text, fields.get("special") is True)
    known = source.tokens[token_id] if token_id < len(source.tokens) else None
    if known == text and source.types[token_id] in (UNKNOWN, CONTROL, BYTE):
        return
    if kind == USER_DEFINED:
        text = text.replace("\u2581", " ")  # such tokens are matched before spaces are escaped
    source.put(token_id, text, kind, ADDED_SCORE)
