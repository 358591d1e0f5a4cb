"""The common parts of a tokenizer.json with BPE: tokens, merges, added tokens.

The format is that of the `tokenizers` library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trinity.errors import TokenizerError
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource
from trinity.tokenizers.spm import SPACE
from trinity.tokenizers.vocabulary import NORMAL, UNUSED

BYTE_TEXT = re.compile(r"<0x[0-9A-F]{2}>")  # a token for a byte
ESCAPE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}  # of spaces
# This pre-tokenizer has no effect after ESCAPE, which leaves no spaces.
NO_SPLIT = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}


def merges_of(model: Mapping[str, object], path: str) -> list[str]:
    """Return merges as "left right", from either of the two formats."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise TokenizerError(f"{path}: model.merges is not a list; download it again")
    texts: list[str] = []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(side, str) and side and " " not in side for side in pair)
        ):
            raise TokenizerError(
                f"{path}: model.merges has {merge!r:.60}; expected two tokens: download it again"
            )
        texts.append(" ".join(pair))
    return texts


def read_vocab(vocab: object, source: VocabularySource) -> None:
    """Read the tokens of model.vocab, all with the type normal."""
    if not isinstance(vocab, dict) or not vocab:
        raise TokenizerError(f"{source.source}: model.vocab is missing or empty")
    ids = list(vocab.values())
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise TokenizerError(f"{source.source}: model.vocab has ids that are not whole numbers")
    if len(set(ids)) < len(ids):
        raise TokenizerError(f"{source.source}: model.vocab has ids that repeat")
    source.check_id(max(ids))
    source.tokens = [None] * (max(ids) + 1)
    source.types = [UNUSED] * len(source.tokens)
    for token, token_id in vocab.items():
        source.tokens[token_id], source.types[token_id] = token, NORMAL


def has_all_bytes(source: VocabularySource) -> bool:
    """Whether each byte has a token <0xNN>."""
    return {f"<0x{byte:02X}>" for byte in range(256)} <= set(source.tokens)


def read_added_tokens(values: Mapping[str, object], source: VocabularySource) -> None:
    """The added_tokens of a tokenizer.json."""
    added = values.get("added_tokens") or []
    if not isinstance(added, list):
        raise TokenizerError(f"{source.source}: added_tokens is not a list; download it again")
    for token in added:
        fields = token if isinstance(token, dict) else {}
        source.put_added(fields.get("id"), fields)
