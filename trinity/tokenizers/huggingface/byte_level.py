"""tokenizer.json with byte-level BPE: GGUF's "gpt2" model.

Source: llama.cpp convert_hf_to_gguf.py, get_vocab_base; the format is that of the `tokenizers`
library.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.tokenizers.huggingface.pre_tokenizer import (
    TELLING_TEXT,
    name_by_ids,
    pre_tokenizer_name,
    unknown,
)
from trinity.tokenizers.huggingface.reference import json_reference
from trinity.tokenizers.huggingface.tokenizer_json import (
    merges_of,
    read_added_tokens,
    read_vocab,
)
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource


def byte_level_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """The vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError for another kind of tokenizer, TokenizerError for a malformed one.
    """
    model = values.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise UnsupportedError(
            f"{path}: a tokenizer of type {kind!r:.40}; trinity reads byte-level BPE and "
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
                f"{path}: BPE with {key} {model[key]!r:.40}; trinity reads byte-level BPE"
            )
