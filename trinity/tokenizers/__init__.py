"""Text to token ids and back, from the vocabulary in a model file's metadata.

SentencePiece vocabularies run on the ``sentencepiece`` library, byte-level BPE on ``tokenizers``;
both are imported when first needed. Chat templates are in ``trinity.tokenizers.chat``.
"""

from __future__ import annotations

from trinity.tokenizers.stream import StreamDecoder
from trinity.tokenizers.tokenizer import Tokenizer, tokenizer_from_metadata

__all__ = ["StreamDecoder", "Tokenizer", "tokenizer_from_metadata"]
