"""Random texts get the ids of the `tokenizers` library with each pre-tokenizer."""

from __future__ import annotations

import json
import random

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from tests.matrix import some
from tests.tokenizers.huggingface.random_tokenizers import text_of
from tests.tokenizers.small_vocabularies import bpe_metadata
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS, PreTokenizer

TEXTS = 200
# One name of each set of rules.
NAMES = list({(p.regexes, p.ignore_merges): name for name, p in PRE_TOKENIZERS.items()}.values())
# What the rules distinguish: numbers, endings, capitals, scripts, punctuation, white space.
PIECES = (
    "1", "12", "1234567", "१२३", "It's", "I'LL", "HelloWorld", "ABc", "한글", "中文字", "ไทย",
    "ខ្មែរ", "かな", "e\u0301", "...", "!?", "[x]", "a/b\n", "/\r\n", "「", "—", "$5", "_", "\r\n",
    "\n\n ", "  ", "\t\t", " " * 9, "\u00a0", "\u2028", "\x1c", "\u200d", "🦙",
    "\U0001f468\u200d\U0001f469",
)  # fmt: skip


def library(rules: PreTokenizer, texts: list[str]) -> Tokenizer:
    """A vocabulary that the library learns from the texts, and its merges."""
    made = Tokenizer(models.BPE(ignore_merges=rules.ignore_merges))
    splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in rules.regexes]
    rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([*splits, rest])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    made.train_from_iterator(texts, trainer)
    return made


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(NAMES, NAMES[:2]))
def test_ids_of_random_texts(name: str) -> None:
    draw = random.Random(name)
    texts = [text_of(draw, list(PIECES)) for _ in range(TEXTS)]
    expected = library(PRE_TOKENIZERS[name], texts)
    merges = [" ".join(pair) for pair in json.loads(expected.to_str())["model"]["merges"]]
    metadata = bpe_metadata(merges, pre=name)
    own, names = tokenizer_from_metadata(metadata), metadata["tokenizer.ggml.tokens"]
    assert isinstance(names, list)
    for text in texts:
        ids = own.encode(text, add_bos=False)
        assert [names[i] for i in ids] == expected.encode(text).tokens, text
        assert own.decode(ids) == text
