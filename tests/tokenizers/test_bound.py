"""The lower bound of a text's number of tokens is never too high."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import some
from tests.tokenizers.conftest import TokenizerOf
from tests.tokenizers.small_vocabularies import (
    TEXTS,
    Metadata,
    bpe,
    bpe_metadata,
    spm,
    spm_metadata,
)
from tests.tokenizers.test_gemma4 import gemma
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata

REAL = ["llama-bpe", "llama-spm", "qwen2", "gpt-2", "phi-3", "models/stories260K"]


def tokens_of(tokenizer: Tokenizer, text: str, parse_special: bool) -> int:
    return len(tokenizer.encode(text, add_bos=False, parse_special=parse_special))


@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize(
    "tokenizer",
    [
        spm(),
        spm(add_space_prefix=False),
        gemma(),
        bpe(),
        spm([("▁", -1.0, 1), ("▁▁", -2.0, 1), ("▁▁▁▁", -3.0, 1), ("▁a▁", 0.0, 4)]),
        bpe(words=[("<|a long special token|>", 3), ("é🦙", 4)]),
    ],
    ids=["spm", "spm without prefix", "gemma4", "bpe", "spm of spaces", "bpe with specials"],
)
@settings(max_examples=60, deadline=None)
@given(text=st.one_of(TEXTS, st.text("▁ a", max_size=30)))
def test_no_text_has_fewer_tokens(tokenizer: Tokenizer, parse_special: bool, text: str) -> None:
    assert tokenizer.least_tokens(text) <= tokens_of(tokenizer, text, parse_special)


@pytest.mark.parametrize("name", some(REAL, ["models/stories260K"]))
@settings(max_examples=30, deadline=None)
@given(text=st.one_of(TEXTS, st.text(" \n\t", max_size=300)))
def test_no_text_has_fewer_tokens_in_real_vocabularies(
    tokenizer_of: TokenizerOf, name: str, text: str
) -> None:
    tokenizer = tokenizer_of(name)
    for parse_special in (False, True):
        assert tokenizer.least_tokens(text) <= tokens_of(tokenizer, text, parse_special)


@pytest.mark.parametrize(
    ("tokenizer", "text", "least"),
    [
        (bpe(), "ab" * 170, 20),  # "<|begin_of_text|>" has 17 bytes, no token has more
        (bpe(words=[("🦙" * 5, 4)]), "ab" * 170, 17),  # one has 20
        (bpe(), "🦙" * 170, 40),
        (spm([("▁" * 8, -1.0, 1), ("▁", -2.0, 1)]), " " * 800, 100),
        (spm([("▁" * 8, -1.0, 1), ("▁", -2.0, 1)]), "▁" * 801, 101),
    ],
)
def test_the_longest_token_sets_the_bound(tokenizer: Tokenizer, text: str, least: int) -> None:
    assert tokenizer.least_tokens(text) == least


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({**spm_metadata(), "general.name": "Phi-3-mini"}, "</s>" + " " * 1000),
        (bpe_metadata(tokens=["a", "b", "ab", "<s>"], token_type=[1, 1, 1, 3], merges=["a b"],
                      bos_token_id=3, eos_token_id=3), "x" * 1000),
    ],
    ids=["white space is dropped", "bytes are dropped"],
)  # fmt: skip
def test_where_text_is_dropped_nothing_is_certain(metadata: Metadata, text: str) -> None:
    tokenizer = tokenizer_from_metadata(metadata)
    assert tokens_of(tokenizer, text, True) < 10
    assert tokenizer.least_tokens(text) == 0
