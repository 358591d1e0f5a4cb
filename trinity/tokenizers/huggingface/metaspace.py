"""tokenizer.json of a SentencePiece tokenizer, where tokenizer.model is absent: GGUF's "llama".

transformers writes such a file: BPE over characters, with U+2581 for a space and tokens for the
bytes of characters that are none. SentencePiece merges the pair whose result has the highest
score, the file's BPE the pair of the lowest rank; they agree where all pairs that make a token
stand together in the list of merges. Then minus the rank of the first is the token's score.
Source: transformers convert_slow_tokenizer.py, generate_merges.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.huggingface.reference import json_reference
from trinity.tokenizers.huggingface.tokenizer_json import (
    BYTE_TEXT,
    ESCAPE,
    NO_SPLIT,
    merges_of,
    read_added_tokens,
    read_vocab,
)
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import BYTE, NORMAL, UNKNOWN

_PREPEND = {"type": "Prepend", "prepend": SPACE}


def is_metaspace(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json holds a SentencePiece tokenizer: its BPE falls back to bytes."""
    model = values.get("model")
    return isinstance(model, dict) and model.get("byte_fallback") is True


def metaspace_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """The vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError where "llama" of GGUF cannot say it, TokenizerError where malformed.
    """
    model = values["model"]
    assert isinstance(model, dict)
    prefix = _adds_prefix(values, path)
    reference = json_reference(values, path, (CHECK_TEXT,))
    source = VocabularySource(path, "llama", rows, [], [], reference, add_space_prefix=prefix)
    read_vocab(model.get("vocab"), source)
    ranks = _ranks(merges_of(model, path), path)
    source.scores = [0.0] * len(source.tokens)
    for token_id, token in enumerate(source.tokens):
        if token is None:
            continue
        if BYTE_TEXT.fullmatch(token):
            source.types[token_id] = BYTE
        elif token == model.get("unk_token") or token == "<unk>":
            source.types[token_id] = UNKNOWN
        elif token in ranks:
            source.scores[token_id] = -float(ranks[token])
    read_added_tokens(values, source)
    _check_reachable(source, ranks)
    return source


def _adds_prefix(values: Mapping[str, object], path: str) -> bool:
    """Whether a space is put before a text; the forms are those that transformers writes."""
    normalizer, splitter = values.get("normalizer"), values.get("pre_tokenizer")
    steps: object = [normalizer]
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        steps = normalizer.get("normalizers")
    if splitter in (None, NO_SPLIT) and steps in ([_PREPEND, ESCAPE], [ESCAPE]):
        return steps != [ESCAPE]
    if normalizer is None and isinstance(splitter, dict) and splitter.get("type") == "Metaspace":
        scheme, replacement = splitter.get("prepend_scheme"), splitter.get("replacement")
        if splitter.get("split") is False and replacement == SPACE and scheme != "always":
            return scheme == "first"
    raise UnsupportedError(
        f"{path}: a SentencePiece tokenizer with the normalizer {normalizer!r:.120} and the "
        f"pre-tokenizer {splitter!r:.120}; put the model's tokenizer.model beside it"
    )


def _ranks(merges: list[str], path: str) -> dict[str, int]:
    """The rank of the first pair that makes each token."""
    ranks: dict[str, int] = {}
    before = ""
    for rank, merge in enumerate(merges):
        token = merge.replace(" ", "")
        if token != before and token in ranks:
            raise UnsupportedError(
                f"{path}: the pairs that make {token!r:.40} do not stand together among the "
                "merges, so no scores give their order; put the model's tokenizer.model beside it"
            )
        ranks.setdefault(token, rank)
        before = token
    return ranks


def _check_reachable(source: VocabularySource, ranks: Mapping[str, int]) -> None:
    """A token that no pair makes would come out of SentencePiece's rule nonetheless."""
    for token, kind in zip(source.tokens, source.types, strict=True):
        if token is not None and kind == NORMAL and len(token) > 1 and token not in ranks:
            raise TokenizerError(
                f"{source.source}: no merge makes the token {token!r:.40}; put the model's "
                "tokenizer.model beside it"
            )
