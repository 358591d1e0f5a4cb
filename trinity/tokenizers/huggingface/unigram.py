"""tokenizer.json with Unigram: GGUF's "t5", as XLM-RoBERTa has it.

Source: llama.cpp conversion/bert.py, _xlmroberta_set_vocab; transformers convert_slow_tokenizer.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import numpy as np

from trinity.errors import TokenizerError, UnsupportedError
from trinity.tokenizers.huggingface.reference import json_reference
from trinity.tokenizers.huggingface.tokenizer_json import read_added_tokens
from trinity.tokenizers.huggingface.vocabulary_source import CHECK_TEXT, VocabularySource
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import NORMAL, UNKNOWN

_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_SPLIT = {"type": "WhitespaceSplit"}


def is_unigram(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json holds a Unigram tokenizer."""
    model = values.get("model")
    return isinstance(model, dict) and model.get("type") == "Unigram"


def unigram_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """The vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError where "t5" of GGUF cannot say it, TokenizerError where malformed.
    """
    model = values["model"]
    assert isinstance(model, dict)
    charsmap = _charsmap(values.get("normalizer"), path)
    _check_splitter(values.get("pre_tokenizer"), path)
    pairs, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], int | float)
        for pair in pairs
    ):
        raise TokenizerError(f"{path}: model.vocab is no list of tokens with scores")
    reference = json_reference(values, path, (CHECK_TEXT,))
    source = VocabularySource(path, "t5", rows, [], [], reference)
    source.tokens = [pair[0] for pair in pairs]
    source.scores = [float(pair[1]) for pair in pairs]
    source.types = [UNKNOWN if i == unknown else NORMAL for i in range(len(pairs))]
    source.more["remove_extra_whitespaces"] = True
    source.more["add_space_prefix"] = True
    if charsmap:
        source.more["precompiled_charsmap"] = np.frombuffer(charsmap, np.uint8)
    read_added_tokens(values, source)
    return source


def _charsmap(normalizer: object, path: str) -> bytes:
    """The table by which texts are normalized, b"" without one."""
    steps: object = [] if normalizer is None else [normalizer]
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        steps = normalizer.get("normalizers")
    if isinstance(steps, list) and steps and steps[-1] == _ONE_SPACE:
        steps = steps[:-1]
    if steps == []:
        return b""
    first = steps[0] if isinstance(steps, list) and len(steps) == 1 else None
    if isinstance(first, dict) and first.get("type") == "Precompiled":
        try:
            return base64.b64decode(str(first.get("precompiled_charsmap")), validate=True)
        except binascii.Error as error:
            raise TokenizerError(f"{path}: precompiled_charsmap is no base64: {error}") from error
    raise UnsupportedError(
        f"{path}: a Unigram tokenizer with the normalizer {normalizer!r:.120}; trinity reads a "
        "precompiled one"
    )


def _check_splitter(splitter: object, path: str) -> None:
    """Each word begins with U+2581; the forms are those that transformers writes."""
    steps: object = [splitter]
    if isinstance(splitter, dict) and splitter.get("type") == "Sequence":
        steps = splitter.get("pretokenizers")
    if isinstance(steps, list) and steps[:1] == [_SPLIT]:
        steps = steps[1:]
    last = steps[0] if isinstance(steps, list) and len(steps) == 1 else None
    if (
        isinstance(last, dict)
        and last.get("type") == "Metaspace"
        and last.get("replacement") == SPACE
        and last.get("prepend_scheme", "always") == "always"
        and last.get("add_prefix_space", True) is True
    ):
        return
    raise UnsupportedError(
        f"{path}: a Unigram tokenizer with the pre-tokenizer {splitter!r:.160}; trinity reads "
        "XLM-RoBERTa's"
    )
