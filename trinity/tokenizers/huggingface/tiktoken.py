"""qwen.tiktoken, the vocabulary of Qwen 1: byte-level BPE, with the rank of each token as its id.

The other rules are in the code that is published with the models.
Source: tokenization_qwen.py of Qwen-7B; llama.cpp conversion/qwen.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from itertools import pairwise

from trinity.errors import TokenizerError
from trinity.formats.mapping import read_whole
from trinity.tokenizers.bpe import BYTE_CHARACTERS
from trinity.tokenizers.huggingface.byte_level import byte_level_source
from trinity.tokenizers.huggingface.pre_tokenizer import pre_tokenizer_of
from trinity.tokenizers.huggingface.vocabulary_source import VocabularySource

# How the chat models are asked, if generation_config.json says so.
CHATML = (
    "{% if messages and messages[0].role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_MOST_BYTES = 1 << 24  # the published file has 2.6 million
_MOST_STEPS = 1 << 26  # of the search for merges; that file takes 6 million
_END = "<|endoftext|>"
_SPECIALS = (_END, "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205)))


def tiktoken_source(path: str, rows: int) -> VocabularySource:
    """Read the vocabulary of the file ``path``, for ``rows`` ids.

    Raises TokenizerError for a malformed file, FormatError for one that is too large.
    """
    ranks = _ranks(path)
    count, vocab = len(ranks), {_text(token): rank for token, rank in ranks.items()}
    values: dict[str, object] = {
        "model": {"type": "BPE", "vocab": vocab, "merges": _merges(ranks, path)},
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": pre_tokenizer_of("qwen2"),
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "added_tokens": [
            {"id": count + i, "content": token, "special": True} | _PLAIN
            for i, token in enumerate(_SPECIALS)
        ],
    }
    source = byte_level_source(values, path, rows)
    source.more = {"bos_token_id": count, "eos_token_id": count}
    return source


_PLAIN = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def chat_template_of(generation_config: Mapping[str, object]) -> str | None:
    """Return the template of a model whose generation_config.json names ChatML."""
    return CHATML if generation_config.get("chat_format") == "chatml" else None


def _ranks(path: str) -> dict[bytes, int]:
    """Return the ranks of all tokens, in order: 0, 1, ... Raises TokenizerError."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_whole(path, _MOST_BYTES).splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        try:
            token, rank = base64.b64decode(fields[0], validate=True), int(fields[1])
        except (binascii.Error, IndexError, ValueError):
            token, rank = b"", -1
        if not token or len(fields) > 2 or token in ranks or rank != len(ranks):
            raise TokenizerError(
                f"{path}: line {number} is {line[:60]!r}; expected a new token in base64 and its "
                f"rank, {len(ranks)}; download it again"
            )
        ranks[token] = rank
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise TokenizerError(f"{path}: there is no token for the byte {missing[0]}")
    return ranks


def _merges(ranks: Mapping[bytes, int], path: str) -> list[str]:
    """Return the two tokens that each longer token is merged from, as "left right"."""
    if sum(len(token) ** 2 for token in ranks) > _MOST_STEPS:
        raise TokenizerError(f"{path}: its tokens are too long; download it again")
    merges: list[str] = []
    for token, rank in ranks.items():
        if len(token) == 1:
            continue
        parts = _parts(ranks, token, rank)
        if len(parts) != 2:
            raise TokenizerError(
                f"{path}: token {rank}, {token[:40]!r}, is not merged from two tokens of lower rank"
            )
        merges.append(" ".join(map(_text, parts)))
    return merges


def _parts(ranks: Mapping[bytes, int], token: bytes, rank: int) -> list[bytes]:
    """Return the parts of a token that merges of lower ranks leave."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        found = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
        least = min(found)
        if least >= rank:
            break
        at = found.index(least)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def _text(token: bytes) -> str:
    return "".join(BYTE_CHARACTERS[byte] for byte in token)
