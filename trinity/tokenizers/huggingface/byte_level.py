"""tokenizer.json with byte-level BPE: GGUF's "gpt2" model.

Source: llama.cpp convert_hf_to_gguf.py, get_vocab_base; the format is that of the `tokenizers`
library.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.tokenizers.bpe import BYTE_CHARACTERS
from trinity.tokenizers.huggingface.file_rules import (
    add_rules,
    has_known_steps,
    has_normalized,
    reference_of,
)
from trinity.tokenizers.huggingface.pre_tokenizer import (
    TELLING_TEXT,
    name_by_ids,
    pre_tokenizer_name,
    pre_tokenizer_of,
    unknown,
)
from trinity.tokenizers.huggingface.tokenizer_json import merges_of, read_added_tokens, read_vocab
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource
from trinity.tokenizers.rules import steps

_NFC = {"type": "NFC"}


def byte_level_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError for another kind of tokenizer, TokenizerError for a malformed one.
    """
    model = values.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        raise UnsupportedError(
            f"{path}: a tokenizer of type {kind!r:.40} is not supported; trinity reads byte-level "
            "BPE and SentencePiece's BPE"
        )
    ignore_merges = model.get("ignore_merges") is True
    merges = merges_of(model, path)
    reference = reference_of(values, path, rows, (CHECK_TEXT, TELLING_TEXT))
    source = VocabularySource(path, "gpt2", rows, [], [], reference, merges=merges)
    read_vocab(model.get("vocab"), source)
    description = values.get("pre_tokenizer")
    source.pre = pre_tokenizer_name(description, ignore_merges)
    is_known = source.pre is not None
    drops = model.get("unk_token") is None or set(BYTE_CHARACTERS.values()) <= set(source.tokens)
    if source.pre is None:
        source.pre = name_by_ids(source, merges, ignore_merges)
    read_added_tokens(values, source)
    normalizer = values.get("normalizer")
    composes = normalizer == _NFC and not has_normalized(values)
    is_plain = drops and (normalizer is None or composes)
    if is_known or has_known_steps(description):
        if not is_known:
            _check_bytes(values, path)
        add_rules(source, values, is_plain=is_known and is_plain)
    elif source.pre is not None:
        # The description is unknown, but TELLING_TEXT has the ids of known rules.
        described = {**values, "pre_tokenizer": pre_tokenizer_of(source.pre)}
        add_rules(source, described, is_plain=is_plain)
    else:
        raise unknown(description, ignore_merges, path)
    source.nfc = composes and source.rules is None
    source.pre = source.pre or "default"
    return source


def _check_bytes(values: Mapping[str, object], path: str) -> None:
    """Raise UnsupportedError if the tokens are not written as bytes."""
    all_steps = [*steps(values.get("normalizer")), *steps(values.get("pre_tokenizer"))]
    if not any(step.get("type") == "ByteLevel" for step in all_steps):
        raise UnsupportedError(
            f"{path}: BPE without ByteLevel and without byte_fallback is not supported; trinity "
            "reads byte-level BPE and SentencePiece's BPE"
        )
