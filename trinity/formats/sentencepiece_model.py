"""Read tokenizer.model, SentencePiece's format, without its library or a protobuf package.

The file is one protobuf message; only a few of its fields are needed. Source: sentencepiece
src/sentencepiece_model.proto; protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from trinity.errors import FormatError

UNIGRAM, BPE = 1, 2  # values of TrainerSpec.model_type
# The largest vocabularies in use have 262,144 pieces, and files of 5 MB.
MAX_BYTES = 1 << 24
MAX_PIECES = 3 << 17
# Limits: fields of a piece (three are known), fields of a message about training or the like, and
# the number of such messages (five are known).
_PIECE_FIELDS, _OTHER_FIELDS, _OTHERS = 4, 1 << 16, 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


@dataclass(slots=True)
class SentencePieceModel:
    """The pieces of a model, by id.

    Types are those of tokenizer.ggml.token_type. ``model_type`` is UNIGRAM or BPE, or a type that
    trinity does not support.
    """

    pieces: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    model_type: int = UNIGRAM
    add_dummy_prefix: bool = True


def parse_sentencepiece_model(raw: bytes, source: str) -> SentencePieceModel:
    """Parse the model in ``raw``. Raises FormatError if it is malformed or too large."""
    model = SentencePieceModel()
    try:
        for count, (number, value) in enumerate(_fields(raw, MAX_PIECES + _OTHERS)):
            if count - len(model.pieces) >= _OTHERS:
                raise ValueError(f"it has more than {_OTHERS} messages that are not pieces")
            if number == 1 and isinstance(value, bytes):
                _read_piece(value, model)
            elif number == 2 and isinstance(value, bytes):
                model.model_type = _numbers(value).get(3, UNIGRAM)
            elif number == 3 and isinstance(value, bytes):
                normalizer = _numbers(value)
                model.add_dummy_prefix = bool(normalizer.get(3, 1))
    except (ValueError, struct.error) as error:
        raise FormatError(f"{source}: not a SentencePiece model: {error}") from None
    if not model.pieces:
        raise FormatError(f"{source}: not a SentencePiece model: it has no pieces")
    return model


def _read_piece(raw: bytes, model: SentencePieceModel) -> None:
    """Read a SentencePiece message: piece 1, score 2 (32-bit float), type 3."""
    piece, score, kind = "", 0.0, 1
    for number, value in _fields(raw, _PIECE_FIELDS):
        if number == 1 and isinstance(value, bytes):
            piece = value.decode()
        elif number == 2 and isinstance(value, bytes):
            score = struct.unpack("<f", value)[0]
        elif number == 3 and isinstance(value, int):
            kind = value
    if not 1 <= kind <= 6:
        raise ValueError(f"piece {len(model.pieces)} has the unknown type {kind}")
    model.pieces.append(piece)
    model.scores.append(score)
    model.types.append(kind)


def _numbers(raw: bytes) -> dict[int, int]:
    fields = _fields(raw, _OTHER_FIELDS)
    return {number: value for number, value in fields if isinstance(value, int)}


def _fields(raw: bytes, most: int) -> Iterator[tuple[int, int | bytes]]:
    """Yield at most ``most`` field numbers and values: int for varints, bytes for the rest."""
    at = count = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        count += 1
        if count > most:
            raise ValueError(f"a message has more than {most} fields")
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(raw, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(raw, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"byte {at} begins a field of the unknown wire type {kind}")
        if length > len(raw) - at:
            raise ValueError(f"a field of {length} bytes at byte {at} reaches past the end")
        yield key >> 3, raw[at : at + length]
        at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at`` and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(raw):
            raise ValueError("the file ends within a number")
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number at byte {at} has more than ten bytes")
