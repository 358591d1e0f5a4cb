"""tokenize adds a file's special tokens around a text, and detokenize drops them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trinity

ENCODERS = ("bert_cls", "nomic_bert", "xlm_roberta", "qwen3_embedding", "gemma_embedding")


@pytest.mark.parametrize("name", ENCODERS)
def test_tokens_are_those_of_transformers(shared_data: Path, name: str) -> None:
    golden = json.loads((shared_data / "encoders" / name / "golden.json").read_text("utf-8"))
    with trinity.load(shared_data / "encoders" / name / "model.gguf", threads=1) as model:
        for one in golden["texts"]:
            ids = model.tokenize(one["text"])
            assert ids == one["ids"]
            inner = model.tokenize(one["text"], add_bos=False)
            assert model.detokenize(ids) == model.detokenize(inner, remove_special=False)
            assert (
                model.tokenizer.token_text(ids[0]) in model.detokenize(ids, remove_special=False)
                or not model.tokenizer.add_bos
            )


def test_a_round_trip_gives_the_text(shared_data: Path) -> None:
    """The vocabulary has a BOS, which does not become text."""
    with trinity.load(shared_data / "architectures" / "llama3_rope" / "model.gguf") as model:
        text = "Once upon a time,  there was."
        assert model.detokenize(model.tokenize(text)) == text
