"""Special tokens in texts of encoders, compared with transformers' tokenizers."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import trinity
from trinity.tokenizers import spm

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "ranks.json").read_text("utf-8"))["texts"]


@pytest.mark.parametrize("name", GOLDEN)
def test_they_are_the_tokens_that_they_name(shared_data: Path, name: str) -> None:
    with trinity.load(shared_data / "encoders" / name / "model.gguf", threads=1) as model:
        for text, ids in GOLDEN[name].items():
            assert model.tokenizer.encode_whole(text) == ids
            assert model.tokenize(text, parse_special=True) == ids
            assert np.array_equal(model.embed([text]), model.embed([ids]))


def test_those_of_a_prompt_are_text_unless_asked_for(shared_data: Path) -> None:
    tokenizer = trinity.load_tokenizer(shared_data / "encoders" / "bert_cls" / "model.gguf")
    whole = GOLDEN["bert_cls"]["a [MASK] b"]
    assert tokenizer.encode("a [MASK] b", add_eos=True) != whole
    assert tokenizer.encode("a [MASK] b", add_eos=True, parse_special=True) == whole


@pytest.mark.parametrize("name", ["bert_mean", "xlm_roberta"])
def test_other_threads_run_while_a_long_text_is_tokenized(shared_data: Path, name: str) -> None:
    tokenizer = trinity.load_tokenizer(shared_data / "encoders" / name / "model.gguf")
    tokenizer.encode("It builds its tables.")
    thread = threading.Thread(target=tokenizer.encode, args=["a few words " * 30_000])
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 5  # at most 2 if the interpreter's lock is held from the beginning to the end


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_long_texts_are_cut_where_no_token_changes(
    shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = trinity.load_tokenizer(shared_data / "vocab" / f"ggml-vocab-{name}.gguf")
    chance = random.Random(3)
    parts = ["the", "word", " ", "  ", "\n", ". ", "▁", "é ", ", a", "{ ", "x", "\t ", "🦙 ", "1 2"]
    pieces = 0
    for _ in range(300):
        text = "".join(chance.choices(parts, k=60))
        monkeypatch.setattr(spm, "_PIECE", 1 << 16)
        whole = tokenizer.encode(text)
        monkeypatch.setattr(spm, "_PIECE", 1)
        assert tokenizer.encode(text) == whole
        pieces += len(list(tokenizer._encoder._pieces(text)))  # type: ignore[union-attr]
    assert pieces > 3000
