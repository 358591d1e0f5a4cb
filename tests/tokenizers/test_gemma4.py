"""Gemma 4's BPE over characters: merges over the whole text, bytes for unknown characters."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenizers.small_vocabularies import Metadata, with_overrides
from trinity.errors import TokenizerError
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata

MERGES = ["▁ ▁", "e ▁", "t h", "▁ th", "▁▁ ▁▁", "▁th e▁", "\n \n", ", ▁", "\n\n \n\n", "e e"]
CHARACTERS = [*"aeht.,\n", "▁", "é"]


def metadata(**overrides: object) -> Metadata:
    """Four special tokens, the 256 bytes, some characters, what MERGES make."""
    made = [merge.replace(" ", "") for merge in MERGES]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [3] * 4 + [6] * 256 + [1] * (len(CHARACTERS) + len(made))
    return with_overrides(
        {
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.tokens": [*tokens, *CHARACTERS, *made],
            "tokenizer.ggml.scores": [0.0] * len(types),
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.unknown_token_id": 3,
            "tokenizer.ggml.add_bos_token": True,
        },
        overrides,
    )


def gemma(**overrides: object) -> Tokenizer:
    """The tokenizer of ``metadata``."""
    return tokenizer_from_metadata(metadata(**overrides))


def test_sarvams_files_name_another_kind() -> None:
    tokenizer = gemma(model="gpt2", pre="sarvam-moe")
    assert tokenizer.encode("the  tea,\n\né") == gemma().encode("the  tea,\n\né")
    without = gemma(model="gpt2", pre="sarvam-moe", add_bos_token=False)
    assert without.encode("tea") == gemma().encode("tea")[1:]


def reference(text: str) -> list[str]:
    """Tokens of ``text`` by the rules and no library: the lowest rank first, then the leftmost."""
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(MERGES)}
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not pairs:
            break
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    known = {*CHARACTERS, *(merge.replace(" ", "") for merge in MERGES)}
    found: list[str] = []
    for symbol in symbols:
        found += [symbol] if symbol in known else [f"<0x{byte:02X}>" for byte in symbol.encode()]
    return found


@settings(max_examples=200, deadline=None)
@given(text=st.text("the a,.\n▁é🚀\0x", max_size=40))
def test_any_text(text: str) -> None:
    tokenizer = gemma()
    ids = tokenizer.encode(text, add_bos=False)
    assert [tokenizer.token_text(i) for i in ids] == reference(text)
    assert tokenizer.decode(ids) == text.replace("▁", " ")
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.finish() == text.replace("▁", " ")


def test_a_long_text_needs_no_words() -> None:
    tokenizer = gemma()
    piece = "the eth,  aé\n\n\n"
    ids = tokenizer.encode(piece * 20_000 + " " * 100_000, add_bos=False)
    assert tokenizer.decode(ids) == piece * 20_000 + " " * 100_000
    short = tokenizer.encode(piece, add_bos=False)
    assert ids[: 20_000 * len(short)] == short * 20_000


def test_special_tokens_are_not_words() -> None:
    tokenizer = gemma()
    assert tokenizer.encode("a<eos>", parse_special=True) == [2, 260, 1]
    assert 1 not in tokenizer.encode("a<eos><0x41>")
    assert tokenizer.decode(tokenizer.encode("<0x41>", add_bos=False)) == "<0x41>"
    assert tokenizer.eog_ids == {1}


def test_what_is_no_token_is_unknown_where_bytes_are_missing() -> None:
    tokens = [
        f"<unused{i}>" if 4 <= i < 260 else token
        for i, token in enumerate(
            metadata()["tokenizer.ggml.tokens"]  # type: ignore[arg-type]
        )
    ]
    assert gemma(tokens=tokens).encode("a🚀🚀a", add_bos=False) == [260, 3, 260]
    assert gemma(tokens=tokens, unknown_token_id=...).encode("a🚀a", add_bos=False) == [260, 260]


def test_bos_is_added_whatever_the_file_says() -> None:
    for value in (True, ...):
        assert gemma(add_bos_token=value).encode("a") == [2, 260]
        assert not gemma(add_bos_token=value).notes
    early = gemma(add_bos_token=False)
    assert early.encode("a") == [2, 260]
    assert "Gemma 4 needs BOS" in early.notes[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"merges": ...}, "merges is missing, and character BPE"),
        ({"merges": ["a"]}, "merge 0 is 'a', not two tokens"),
        ({"merges": ["a a"]}, "does not fit the tokens"),
        ({"tokens": ...}, "no tokens"),
    ],
)
def test_malformed(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        gemma(**overrides).encode("a" * 2000)
