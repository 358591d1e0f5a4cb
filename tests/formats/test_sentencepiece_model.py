"""tokenizer.model is read as the sentencepiece library reads it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import sentencepiece

from trinity.errors import FormatError
from trinity.formats.sentencepiece_model import BPE, parse_sentencepiece_model

MODEL = Path(__file__).parents[1] / "data" / "hf" / "llama-sharded" / "tokenizer.model"


def test_pieces_are_the_librarys() -> None:
    model = parse_sentencepiece_model(MODEL.read_bytes(), "tokenizer.model")
    library = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    assert len(model.pieces) == library.GetPieceSize()
    for i, (piece, score, kind) in enumerate(
        zip(model.pieces, model.scores, model.types, strict=True)
    ):
        assert piece == library.IdToPiece(i)
        assert score == pytest.approx(library.GetScore(i))
        assert (kind == 2) == library.IsUnknown(i)
        assert (kind == 3) == library.IsControl(i)
        assert (kind == 6) == library.IsByte(i)
    assert model.model_type == BPE
    assert model.add_dummy_prefix


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no pieces"),
        (b"\x0a", "ends within a number"),
        (b"\x0a\x05abc", "reaches past the end"),
        (b"\xff" * 12, "more than ten bytes"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\x03\x0a\x01\xff", "not a SentencePiece model"),
        (b"\x0a\x05\x0a\x01a\x18\x09", "unknown type 9"),
        (b"IQ== 0\nIg== 1\n", "not a SentencePiece model"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_sentencepiece_model(content, "tokenizer.model")


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    whole = MODEL.read_bytes()
    for _ in range(100):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            model = parse_sentencepiece_model(bytes(content[: rng.randrange(1, len(whole))]), "x")
        except FormatError:
            continue
        assert len(model.pieces) == len(model.scores) == len(model.types)
