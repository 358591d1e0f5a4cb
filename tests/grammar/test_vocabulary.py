"""Token bytes in vocabularies of every kind, and how forced text is tokenized."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from trinity.grammar import vocabulary
from trinity.grammar.grammar import Grammar
from trinity.grammar.vocabulary import MARK, GrammarVocabulary, vocabulary_of

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    "Once upon a time",
    '{"a": [1, 2.5, "é≈ 日本"]}',
    "\n\t  x\x7f\u2028",
    "<s></s> <|im_end|>",
]
REAL = ("llama-bpe", "llama-spm", "phi-3", "qwen2", "gpt-2")


def checked(tokenizer: trinity.Tokenizer, texts: list[str]) -> None:
    """Check that a tokenized text passes token by token and decodes to itself."""
    vocabulary = vocabulary_of(tokenizer)
    for text in texts:
        ids = vocabulary._cutter(text)
        raw = b"".join(vocabulary._cutter.tokens[i] for i in ids)
        assert raw == text.encode()
        assert tokenizer.decode(ids, skip_special=True, continuation=True) == text
        guide = Grammar.choice([text]).guide(tokenizer, tokenizer.vocab_size)
        forced = guide.forced()
        assert b"".join(vocabulary._cutter.tokens[i] for i in forced) == text.encode()
        guide.accept(forced)
        assert guide.complete


def test_byte_level_vocabulary() -> None:
    checked(trinity.load_tokenizer(trinity.demo_model()), TEXTS)


def test_sentencepiece_vocabulary() -> None:
    path = ROOT / "tests" / "data" / "stories260K" / "Q4_0.gguf"
    checked(trinity.load_tokenizer(str(path)), TEXTS)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", REAL)
def test_real_vocabularies(shared_data: Path, name: str) -> None:
    tokenizer = trinity.load_tokenizer(str(shared_data / "vocab" / f"ggml-vocab-{name}.gguf"))
    checked(tokenizer, TEXTS)


def test_no_text_becomes_a_control_token() -> None:
    tokenizer = trinity.load_tokenizer(trinity.demo_model())
    guide = Grammar.regex(r"(?s:.){1,40}").guide(tokenizer, tokenizer.vocab_size)
    allowed = guide.allowed()
    special = [i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)]
    assert not allowed[special].any()
    # Nor one whose bytes are part of no character.
    tokens = vocabulary_of(tokenizer)._cutter.tokens
    for token in np.flatnonzero(allowed).tolist():
        assert not tokens[token].startswith(MARK)


def test_every_end_of_generation_token_may_end_it() -> None:
    tokenizer = trinity.load_tokenizer(trinity.demo_model())
    tokenizer.eog_ids = frozenset({0, 5, 9})
    guide = Grammar.regex("a*").guide(tokenizer, tokenizer.vocab_size)
    assert guide.allowed()[[0, 5, 9]].all()


def test_a_vocabulary_without_an_end() -> None:
    tokenizer = trinity.load_tokenizer(trinity.demo_model())
    tokenizer.eog_ids = frozenset()
    guide = Grammar.regex("ab?").guide(tokenizer, tokenizer.vocab_size)
    guide.accept(tokenizer.encode("a", add_bos=False))
    assert guide.allowed().nonzero()[0].tolist() == tokenizer.encode("b", add_bos=False)
    guide.accept(tokenizer.encode("b", add_bos=False))
    assert guide.complete


def test_it_is_made_once_and_goes_with_its_tokenizer() -> None:
    tokenizer = trinity.load_tokenizer(trinity.demo_model())
    Grammar.regex("a").guide(tokenizer, tokenizer.vocab_size)
    first = vocabulary_of(tokenizer)
    assert vocabulary_of(tokenizer) is first
    known = weakref.ref(first)
    assert isinstance(first, GrammarVocabulary)
    del tokenizer, first
    gc.collect()
    assert known() is None


def test_compiled_grammars_have_a_limit_in_number_and_in_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Matcher:
        def deep_copy(self) -> Matcher:
            return self

    made: list[int] = []

    def compiled(number: int, length: int) -> None:
        def make(table: Any, ids: Any) -> Any:
            made.append(number)
            return Matcher()

        found.matcher(number, length, make)

    monkeypatch.setattr(vocabulary, "KEPT", 3)
    monkeypatch.setattr(vocabulary, "KEPT_CHARACTERS", 100)
    found = vocabulary.GrammarVocabulary(trinity.load_tokenizer(trinity.demo_model()))
    for number in (1, 2, 3, 1, 4, 1, 2):  # 1 is used again, 2 is dropped by 4
        compiled(number, 10)
    assert made == [1, 2, 3, 4, 2]
    compiled(5, 85)  # beside it there is room for one more
    compiled(2, 10)
    compiled(6, 1000)  # the newest is kept whatever its length
    compiled(6, 1000)
    assert made == [1, 2, 3, 4, 2, 5, 6]
    compiled(2, 10)
    assert made[-1] == 2
