"""Special tokens in a text, compared with a plain version of llama.cpp's algorithm."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processor_time import within
from tests.tokenizers.small_vocabularies import spm
from trinity.errors import TokenizerError
from trinity.tokenizers import special
from trinity.tokenizers.special import SpecialTokens
from trinity.tokenizers.vocabulary import (
    CONTROL,
    MAX_SPECIAL_LENGTHS,
    NORMAL,
    USER_DEFINED,
    Vocabulary,
)

ALPHABET = "ab é\n🙂"
Word = tuple[str, int, bool]
WORDS = st.lists(
    st.tuples(
        st.text(ALPHABET, min_size=1, max_size=6),
        st.sampled_from([NORMAL, CONTROL, USER_DEFINED]),
        st.booleans(),
    ),
    unique_by=lambda word: word[0],
    max_size=20,
)


def vocabulary(words: list[Word]) -> Vocabulary:
    texts = [text for text, _, _ in words]
    return Vocabulary(
        "llama",
        texts,
        np.array([kind for _, kind, _ in words], np.int8),
        {text: i for i, text in enumerate(texts)},
        rstrip=frozenset(i for i, word in enumerate(words) if word[2]),
    )


def plain(words: list[Word], text: str, parse_special: bool) -> list[str | int]:
    """One special token after the other, the longest first, in what is left of the text."""
    kinds = (CONTROL, USER_DEFINED) if parse_special else (USER_DEFINED,)
    ids = [i for i, (_, kind, _) in enumerate(words) if kind in kinds]
    parts: list[str | int] = [text]
    for i in sorted(ids, key=lambda i: -len(words[i][0].encode())):
        cut: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                cut.append(part)
                continue
            first, *rest = part.split(words[i][0])
            cut.append(first)
            for after in rest:
                cut += [i, after.lstrip(" \t\n\v\f\r") if words[i][2] else after]
        parts = cut
    return [part for part in parts if part != ""]


@pytest.mark.few(1)
@pytest.mark.parametrize("few", [128, 0])
def test_any_vocabulary_and_text(few: int) -> None:
    """The two searches, by token and by length, agree."""

    @settings(max_examples=200, deadline=None)
    @given(words=WORDS, text=st.text(ALPHABET, max_size=60), parse_special=st.booleans())
    def check(words: list[Word], text: str, parse_special: bool) -> None:
        found = SpecialTokens(vocabulary(words)).partition(text, parse_special)
        assert found == plain(words, text, parse_special)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(special, "_FEW", few)
        patch.setattr(special, "_FEW_SEARCHES", few)
        check()


PAIRS = [chr(0x4E00 + i) + chr(0x5E00 + j) for i in range(250) for j in range(250)]
CRAFTED: dict[str, tuple[list[str], str]] = {
    "all tokens in a row": (PAIRS, "".join(PAIRS)),
    "tokens across those that are there": (PAIRS, "".join(p[1] + p[0] for p in PAIRS)),
    "one character, of all lengths": (
        ["a" * n for n in range(1, MAX_SPECIAL_LENGTHS + 1)],
        ("a" * (MAX_SPECIAL_LENGTHS - 1) + "b") * (131_072 // MAX_SPECIAL_LENGTHS),
    ),
    "almost there, of all lengths": (
        ["a" * n + "b" + "a" * n for n in range(1, MAX_SPECIAL_LENGTHS + 1)],
        "a" * 131_072,
    ),
    "each length once": (
        ["a" * n for n in range(1, MAX_SPECIAL_LENGTHS + 1)],
        "b".join("a" * n for n in range(1, MAX_SPECIAL_LENGTHS + 1)) + "b" * 100_000,
    ),
    "few, almost there": (["a" * n + "b" + "a" * n for n in range(1, 129)], "a" * 131_072),
    "one after another": (["<x>"], "<x>a" * 30_000),
    "white space": (["<x>"], ("<x>" + " " * 1000) * 130),
    "long ones": (["a" * 16_000 + f"{i:03}" for i in range(500)], "a" * 131_072),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_vocabularies(name: str) -> None:
    """The search takes seconds; trying one token after the other could take minutes."""
    texts, text = CRAFTED[name]
    specials = SpecialTokens(vocabulary([(t, CONTROL, True) for t in texts]))
    parts = within(2.0, lambda: specials.partition(text, True), time.process_time)
    assert "".join(texts[p] if isinstance(p, int) else p for p in parts) == text.replace(" ", "")


def test_tokens_of_many_lengths_are_refused() -> None:
    """Text is searched once for each length."""
    words = [("x" * n, 0.0, USER_DEFINED) for n in range(1, MAX_SPECIAL_LENGTHS + 1)]
    with pytest.raises(TokenizerError, match=f"have {MAX_SPECIAL_LENGTHS + 3} different lengths"):
        spm([*words, *((f"<{'y' * 1000 * n}>", 0.0, CONTROL) for n in range(1, 4))])
