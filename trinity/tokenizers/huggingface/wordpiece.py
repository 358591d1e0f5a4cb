"""tokenizer.json with WordPiece: GGUF's "bert".

Source: llama.cpp conversion/bert.py, set_vocab.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.tokenizers.huggingface.file_rules import add_rules, has_normalized, reference_of
from trinity.tokenizers.huggingface.tokenizer_json import read_added_tokens, read_vocab
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.rules import steps
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import NORMAL

_GOES_ON = "##"
_LONGEST_WORD = 100  # characters; see trinity.tokenizers.wordpiece


def is_wordpiece(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json has a WordPiece tokenizer."""
    model = values.get("model")
    return isinstance(model, dict) and model.get("type") == "WordPiece"


def wordpiece_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError for unsupported rules, TokenizerError if it is malformed.
    """
    model, normalizer = values["model"], values.get("normalizer")
    assert isinstance(model, dict)
    if model.get("continuing_subword_prefix", _GOES_ON) != _GOES_ON:
        raise UnsupportedError(
            f"{path}: WordPiece with the prefix {model['continuing_subword_prefix']!r:.40}; only "
            f"{_GOES_ON!r} is supported"
        )
    is_plain = (
        isinstance(normalizer, dict)
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text", True) is True
        and normalizer.get("handle_chinese_chars", True) is True
        and values.get("pre_tokenizer") == {"type": "BertPreTokenizer"}
        and model.get("max_input_chars_per_word", _LONGEST_WORD) == _LONGEST_WORD
        and not has_normalized(values)
    )
    reference = reference_of(values, path, rows)
    source = VocabularySource(path, "bert", rows, [], [], reference)
    lowers = next((s for s in steps(normalizer) if s.get("type") == "BertNormalizer"), {})
    source.more["normalizer.lowercase"] = lowers.get("lowercase", bool(lowers)) is not False
    if isinstance(lowers.get("strip_accents"), bool):
        source.more["normalizer.strip_accents"] = lowers["strip_accents"]
    read_vocab(model.get("vocab"), source)
    if model.get("unk_token") in source.tokens:
        source.more["unknown_token_id"] = source.tokens.index(model["unk_token"])
    read_added_tokens(values, source)
    add_rules(source, values, is_plain=is_plain)
    for i, (token, kind) in enumerate(zip(source.tokens, source.types, strict=True)):
        if token is not None and kind == NORMAL:
            goes_on = token.startswith(_GOES_ON) and len(token) > len(_GOES_ON)
            source.tokens[i] = token.removeprefix(_GOES_ON) if goes_on else SPACE + token
    return source
