"""tokenizer.json with WordPiece: GGUF's "bert".

Source: llama.cpp conversion/bert.py, set_vocab.
"""

from __future__ import annotations

from collections.abc import Mapping

from trinity.errors import UnsupportedError
from trinity.tokenizers.huggingface.reference import json_reference
from trinity.tokenizers.huggingface.tokenizer_json import read_added_tokens, read_vocab
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import NORMAL

_GOES_ON = "##"


def is_wordpiece(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json holds a WordPiece tokenizer."""
    model = values.get("model")
    return isinstance(model, dict) and model.get("type") == "WordPiece"


def wordpiece_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """The vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError where "bert" of GGUF cannot say it, TokenizerError where malformed.
    """
    model, normalizer = values["model"], values.get("normalizer")
    assert isinstance(model, dict)
    splitter = values.get("pre_tokenizer")
    if (
        not isinstance(normalizer, dict)
        or normalizer.get("type") != "BertNormalizer"
        or splitter != {"type": "BertPreTokenizer"}
        or model.get("continuing_subword_prefix", _GOES_ON) != _GOES_ON
    ):
        raise UnsupportedError(
            f"{path}: a WordPiece tokenizer with the normalizer {normalizer!r:.120} and the "
            f"pre-tokenizer {splitter!r:.80}; trinity reads BERT's"
        )
    reference = json_reference(values, path, (CHECK_TEXT,))
    source = VocabularySource(path, "bert", rows, [], [], reference)
    source.more["normalizer.lowercase"] = normalizer.get("lowercase") is not False
    if isinstance(normalizer.get("strip_accents"), bool):
        source.more["normalizer.strip_accents"] = normalizer["strip_accents"]
    read_vocab(model.get("vocab"), source)
    read_added_tokens(values, source)
    for i, (token, kind) in enumerate(zip(source.tokens, source.types, strict=True)):
        if token is not None and kind == NORMAL:
            goes_on = token.startswith(_GOES_ON) and len(token) > len(_GOES_ON)
            source.tokens[i] = token.removeprefix(_GOES_ON) if goes_on else SPACE + token
    return source
