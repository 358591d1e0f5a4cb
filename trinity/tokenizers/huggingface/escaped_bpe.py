"""tokenizer.json with BPE over characters, U+2581 for a space, <0xNN> for bytes: GGUF's "gemma4".

Unlike "llama", which merges by scores, it contains the merges.
Source: llama.cpp conversion/gemma.py, Gemma4Model.set_vocab.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.tokenizers.huggingface.file_rules import (
    add_rules,
    check_escapes,
    decodes_alike,
    reference_of,
)
from trinity.tokenizers.huggingface.tokenizer_json import (
    BYTE_TEXT,
    ESCAPE,
    NO_SPLIT,
    has_all_bytes,
    merges_of,
    read_added_tokens,
    read_vocab,
)
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.vocabulary import BYTE, CONTROL, USER_DEFINED

_SCORE = -1000.0  # of every token; it is not used
# Special tokens that programs search for in responses.
_VISIBLE = frozenset(
    [
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        '<|"|>',
    ]
)


def escaped_bpe_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError if GGUF's "gemma4" cannot store it, TokenizerError if it is malformed.
    """
    model = values.get("model")
    normalizer, splitter = values.get("normalizer"), values.get("pre_tokenizer")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not model.get("byte_fallback"):
        raise UnsupportedError(
            f"{path}: not BPE with byte_fallback, which models of this class use"
        )
    check_escapes(values, path)
    merges = merges_of(model, path)
    reference = reference_of(values, path, rows)
    source = VocabularySource(
        path, "gemma4", rows, [], [], reference, merges=merges, add_space_prefix=False
    )
    read_vocab(model.get("vocab"), source)
    read_added_tokens(values, source)
    is_plain = normalizer == ESCAPE and splitter in (None, NO_SPLIT) and has_all_bytes(source)
    add_rules(source, values, is_plain=is_plain and decodes_alike(values, prefix=False))
    source.scores = [_SCORE] * len(source.tokens)
    for token_id, token in enumerate(source.tokens):
        if token is not None and BYTE_TEXT.fullmatch(token):
            source.types[token_id] = BYTE
        elif token in _VISIBLE and source.types[token_id] == CONTROL:
            source.types[token_id] = USER_DEFINED
    return source


def is_escaped_bpe(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json has BPE over characters, with bytes for unknown ones."""
    model = values.get("model")
    return (
        isinstance(model, dict)
        and model.get("type") == "BPE"
        and model.get("byte_fallback") is True
        and values.get("normalizer") == ESCAPE
        and values.get("pre_tokenizer") in (None, NO_SPLIT)
    )


def sarvam_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """Read such a vocabulary from the files of Sarvam's models, which store it in another form.

    Source: llama.cpp conversion/bailingmoe.py, SarvamMoEModel, and conversion/base.py.
    """
    source = escaped_bpe_source(values, path, rows)
    source.model, source.pre, source.scores = "gpt2", "sarvam-moe", None
    return source
