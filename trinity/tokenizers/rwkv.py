"""RWKV's vocabulary: each token is the longest one that the rest of the text begins with.

Tokens are bytes, which GGUF stores escaped as in Python's source text.
Source: llama.cpp src/llama-vocab.cpp, llm_tokenizer_rwkv and llama_unescape_rwkv_token.
"""

from __future__ import annotations

import re
from collections import defaultdict

from trinity.errors import TokenizerError
from trinity.tokenizers.metadata import RECONVERT
from trinity.tokenizers.vocabulary import NORMAL, Vocabulary

_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)
# Bytes of a token; each position of a text is compared with tokens of so many lengths at most.
_LONGEST = 512
_CHARACTERS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def rwkv_piece(vocab: Vocabulary, token_id: int) -> bytes:
    """Return the bytes of a token."""
    return _ESCAPE.sub(_unescaped, vocab.tokens[token_id].encode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes([int(match[1], 16)])
    return _CHARACTERS.get(match[2], match[2])


class RwkvEncoder:
    """Converts text without special tokens to ids. Usable from several threads at once.

    Raises TokenizerError if a byte has no token, and for a token of more than ``_LONGEST`` bytes.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        kinds = vocab.types.tolist()
        self._ids = {
            rwkv_piece(vocab, token_id): token_id
            for token_id in range(len(vocab))
            if kinds[token_id] == NORMAL
        }
        missing = [byte for byte in range(256) if bytes([byte]) not in self._ids]
        if missing:
            raise TokenizerError(
                f"tokenizer.ggml.tokens has no token for the byte {missing[0]}; {RECONVERT}"
            )
        longest = max(self._ids, key=len)
        if len(longest) > _LONGEST:
            raise TokenizerError(
                f"tokenizer.ggml.tokens: the token {longest[:20]!r}... has {len(longest)} bytes; "
                f"RWKV's have at most {_LONGEST}; {RECONVERT}"
            )
        # The lengths of tokens by their first two bytes, longest first.
        lengths: dict[bytes, set[int]] = defaultdict(set)
        for token in self._ids:
            lengths[token[:2]].add(len(token))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        raw, at, ids = text.encode(), 0, list[int]()
        while at < len(raw):
            for length in self._lengths.get(raw[at : at + 2], ()):
                token = self._ids.get(raw[at : at + length])
                if token is not None:
                    break
            else:
                length = 1
                token = self._ids[raw[at : at + 1]]
            ids.append(token)
            at += length
        return ids
