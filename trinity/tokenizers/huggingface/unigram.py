"""tokenizer.json with Unigram: GGUF's "t5", as XLM-RoBERTa has it.

Source: llama.cpp conversion/bert.py, _xlmroberta_set_vocab; transformers convert_slow_tokenizer.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import numpy as np

from trinity.errors import TokenizerError
from trinity.tokenizers.huggingface.file_rules import add_rules, check_escapes, reference_of
from trinity.tokenizers.huggingface.tokenizer_json import read_added_tokens
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.rules import steps
from trinity.tokenizers.vocabulary import NORMAL, UNKNOWN


def is_unigram(values: Mapping[str, object]) -> bool:
    """Whether a tokenizer.json has a Unigram tokenizer."""
    model = values.get("model")
    return isinstance(model, dict) and model.get("type") == "Unigram"


def unigram_source(values: Mapping[str, object], path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the object ``values`` of the file ``path``, for ``rows`` ids.

    Raises UnsupportedError if GGUF's "t5" cannot store it, TokenizerError if it is malformed.
    """
    model = values["model"]
    assert isinstance(model, dict)
    check_escapes(values, path)
    charsmap = _charsmap(values.get("normalizer"), path)
    pairs, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], int | float)
        for pair in pairs
    ):
        raise TokenizerError(f"{path}: model.vocab is not a list of tokens with scores")
    reference = reference_of(values, path, rows)
    source = VocabularySource(path, "t5", rows, [], [], reference)
    source.tokens = [pair[0] for pair in pairs]
    source.scores = [float(pair[1]) for pair in pairs]
    source.types = [UNKNOWN if i == unknown else NORMAL for i in range(len(pairs))]
    source.more["remove_extra_whitespaces"] = True
    source.more["add_space_prefix"] = True
    if charsmap:
        source.more["precompiled_charsmap"] = np.frombuffer(charsmap, np.uint8)
    read_added_tokens(values, source)
    add_rules(source, values, is_plain=False)  # GGUF does not store where words are cut
    return source


def _charsmap(normalizer: object, path: str) -> bytes:
    """Return the first normalization table, or b"" without one."""
    for step in steps(normalizer):
        if step.get("type") == "Precompiled":
            try:
                return base64.b64decode(str(step.get("precompiled_charsmap")), validate=True)
            except binascii.Error as error:
                raise TokenizerError(
                    f"{path}: precompiled_charsmap is not base64: {error}"
                ) from error
    return b""
