"""SentencePiece vocabularies, run by the `sentencepiece` library.

The library wants a serialized ModelProto; its few fields are written here by hand, so that no
protobuf package is needed.
Source: sentencepiece src/sentencepiece_model.proto; the algorithm is llama.cpp's
llm_tokenizer_spm: the best-scored adjacent pair that is a token is merged, the leftmost of equals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trinity.errors import TokenizerError
from trinity.tokenizers.vocabulary import BYTE, CONTROL, UNKNOWN, Vocabulary

SPACE = "\u2581"  # how these vocabularies write a space

# Characters that are tokenized at once, if they can be: reading the ids holds the interpreter lock.
_PIECE = 1 << 16
_ZERO = bytes(4)  # a score
_MODEL_TYPE_BPE = 2  # TrainerSpec.model_type
_PIECE_NORMAL, _PIECE_UNKNOWN, _PIECE_CONTROL, _PIECE_BYTE = 1, 2, 3, 6  # SentencePiece.Type
# The bytes before a piece's text, by the text's length, for lengths that are stored in one byte.
_HEADS = [b"\n%c\n%c" % (length + 9, length) for length in range(119)]


class SPMEncoder:
    """Converts text without special tokens to ids. Usable from several threads at once."""

    def __init__(self, vocab: Vocabulary) -> None:
        import sentencepiece

        self._vocab_size = len(vocab)
        self._unknown = [] if vocab.unk_id is None else [vocab.unk_id]
        # Characters that some token has before a space. Others cannot be merged with a space after
        # them, so the tokens before such a space do not depend on the text after it.
        self._joined = {" ", SPACE}
        for token in vocab.tokens:
            self._joined.update(part[-1] for part in token.split(SPACE)[:-1] if part)
        self._processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(_model_proto(vocab))
        except Exception as error:  # the library's errors are RuntimeErrors with a C++ source line
            raise TokenizerError(
                f"the sentencepiece library cannot read the vocabulary of {len(vocab)} tokens: "
                f"{error}"
            ) from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; a character without a token becomes its bytes' tokens."""
        ids = list[int]()
        for piece in self._pieces(text):
            ids += self._processor.EncodeAsIds(piece)
        if ids and max(ids) >= self._vocab_size:  # bytes that the vocabulary lacks
            size, unknown = self._vocab_size, self._unknown
            ids = [i for token in ids for i in ([token] if token < size else unknown)]
        return ids

    def _pieces(self, text: str) -> Iterator[str]:
        """Cut a long text where that does not change its tokens."""
        start = end = 0
        while (end := text.find(" ", max(end + 1, start + _PIECE))) >= 0:
            if text[end - 1] not in self._joined:
                yield text[start:end]
                start = end
        yield text[start:]


def spm_piece(vocab: Vocabulary, token_id: int) -> bytes:
    """Return the bytes of a token that is neither control nor user-defined."""
    byte = vocab.byte_of(token_id)
    if byte is not None:
        return bytes((byte,))
    return vocab.tokens[token_id].replace(SPACE, " ").encode()


def _model_proto(vocab: Vocabulary) -> bytes:
    """Return a ModelProto whose first pieces are the vocabulary's tokens, by id.

    Tokens that text must not give (control, unknown, repeated ones) get names that occur in no
    text. Missing byte tokens and the unknown token that the library needs are added at the end.
    """
    assert vocab.scores is not None
    scores: list[bytes] = vocab.scores.astype("<f4").view("V4").tolist()
    # Fast for the 262,144 pieces of Gemma; the loop below replaces the few that are special.
    pieces = [
        _HEADS[len(raw)] + raw + b"\x15" + score + b"\x18\1" if len(raw) < len(_HEADS) else b""
        for raw, score in zip(map(str.encode, vocab.tokens), scores, strict=True)
    ]
    missing = set(range(256))
    kinds = np.isin(vocab.types, (CONTROL, UNKNOWN, BYTE)).tolist()
    repeated = len(vocab.ids) < len(vocab)
    for i, token in enumerate(vocab.tokens):
        if not (kinds[i] or repeated or token[:3] == "<0x" or "\0" in token or not pieces[i]):
            continue
        byte = vocab.byte_of(i) if token.startswith("<0x") else None
        if byte in missing and token == f"<0x{byte:02X}>" and vocab.ids[token] == i:
            missing.discard(byte)
            pieces[i] = _piece(token, scores[i], _PIECE_BYTE)
        elif (
            kinds[i]
            or byte is not None
            or vocab.ids[token] != i
            or "\0" in token  # which the library rejects
        ):
            pieces[i] = _piece(unused_name(vocab, i), _ZERO, _PIECE_CONTROL)
        else:
            pieces[i] = _piece(token, scores[i], _PIECE_NORMAL)
    pieces += [_piece(f"<0x{byte:02X}>", _ZERO, _PIECE_BYTE) for byte in sorted(missing)]
    pieces.append(_piece(unused_name(vocab, len(vocab)), _ZERO, _PIECE_UNKNOWN))
    # TrainerSpec: model_type 3, byte_fallback 35. NormalizerSpec: name 1, add_dummy_prefix 3,
    # remove_extra_whitespaces 4, escape_whitespaces 5; no character map, so text stays as it is.
    trainer = _number(3, _MODEL_TYPE_BPE) + _number(35, 1)
    normalizer = _bytes(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
    return b"".join(pieces) + _bytes(2, trainer) + _bytes(3, normalizer)


def unused_name(vocab: Vocabulary, number: int) -> str:
    """Return a name for a piece that occurs in no text and is not a token."""
    name = f"\1unused {number}"
    while name in vocab.ids:
        name = "\1" + name
    return name


def _piece(text: str, score: bytes, kind: int) -> bytes:
    """Return field 1 of a ModelProto: a SentencePiece.

    Its fields are piece (number 1), score (2, a 32-bit float) and type (3).
    """
    raw = text.encode()
    return _bytes(1, _bytes(1, raw) + b"\x15" + score + _number(3, kind))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
