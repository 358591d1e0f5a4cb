"""tokenizer.json with byte-level BPE gives the ids of the reference library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from tests.matrix import some
from tests.tokenizers.huggingface.directories import (
    REAL,
    keys_of,
    write_real,
)
from tests.tools.golden_models import edit_json, model_directory
from trinity.errors import (
    TokenizerError,
    TrinityError,
    UnsupportedError,
)
from trinity.formats import GGUFProvider
from trinity.tokenizers import tokenizer_from_metadata


@pytest.mark.few(1)
@pytest.mark.parametrize("name", some(REAL, ["gpt-2"]))
def test_real_vocabularies(name: str, shared_data: Path, tmp_path: Path) -> None:
    """Tokens, types and merges are read; all llama.cpp test texts have the expected ids."""
    file = shared_data / "vocab" / f"ggml-vocab-{name}.gguf"
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "generation_config.json").unlink()
    with GGUFProvider(file) as provider:
        metadata = dict(provider.metadata)
    write_real(directory, name, metadata)
    keys = keys_of(directory)
    for key in ("model", "pre", "tokens", "merges", "bos_token_id", "eos_token_id"):
        expected = metadata[f"tokenizer.ggml.{key}"]
        assert keys[f"tokenizer.ggml.{key}"] == expected, key
    np.testing.assert_array_equal(
        keys["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.token_type"]
    )
    tokenizer = tokenizer_from_metadata(keys)
    *texts, _ = Path(f"{file}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    for text, line in zip(texts, Path(f"{file}.out").read_text().splitlines(), strict=True):
        assert tokenizer.encode(text, add_bos=False) == [int(word) for word in line.split()], text


def edit_model(directory: Path, **changes: object) -> None:
    """Set keys of tokenizer.json's model."""
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text("utf-8"))
    values["model"] |= changes
    path.write_text(json.dumps(values), "utf-8")


BPE_REFUSED: dict[str, tuple[dict[str, object], dict[str, object], type[TrinityError], str]] = {
    # changes of the file, changes of its model, error, message
    "whole words": ({}, {"type": "WordLevel"}, UnsupportedError, "type 'WordLevel'"),
    "a pattern that may take long": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}}, {},
        UnsupportedError, "is not supported",
    ),
    "texts that grow": (
        {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 5000}}, {},
        TrinityError, "has a text of 5000 characters|library cannot read",
    ),
    "prefix of continued words": (
        {"normalizer": {"type": "NFD"}}, {"continuing_subword_prefix": "##"}, TrinityError,
        "continuing_subword_prefix|library cannot read",
    ),
    "an added token whose id is another one's": (
        {"added_tokens": [{"id": 282, "content": "<x>", "special": True, "single_word": False,
                           "lstrip": False, "rstrip": False, "normalized": False}]},
        {}, UnsupportedError, "has the id 282 in the file, but",
    ),
    "merges that are no list": ({}, {"merges": {}}, TokenizerError, "cannot read|not a list"),
    "a merge of three": ({}, {"merges": ["a b c"]}, TokenizerError, "cannot read|expected two"),
    "a merge of numbers": ({}, {"merges": [[1, 2]]}, TokenizerError, "cannot read|expected two"),
    "a merge of no tokens": (
        {}, {"merges": ["\u0120zz q"]}, TokenizerError, "tokenizers library cannot read it",
    ),
    "text as ids": ({}, {"vocab": {"a": "1"}}, TokenizerError, "cannot read|not whole numbers"),
    "added tokens that are no list": (
        {"added_tokens": 5}, {}, TokenizerError, "cannot read|added_tokens",
    ),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("case", BPE_REFUSED)
def test_bpe_that_is_refused(case: str, tmp_path: Path) -> None:
    changes, model, kind, message = BPE_REFUSED[case]
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer.json", **changes)
    edit_model(directory, **model)
    with pytest.raises(kind, match=message) as caught:
        keys_of(directory)
    assert "tokenizer.json" in str(caught.value)


def test_ids_without_a_token_are_filled(tmp_path: Path) -> None:
    """Embeddings often have more rows than the vocabulary has tokens."""
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "config.json", vocab_size=288)
    keys = keys_of(directory)
    tokens = keys["tokenizer.ggml.tokens"]
    assert len(tokens) == 288
    assert tokens[283:] == [f"[PAD{i}]" for i in range(283, 288)]
    assert keys["tokenizer.ggml.token_type"].tolist()[283:] == [5] * 5


def test_rules_beyond_gguf_are_kept_beside_its_keys(tmp_path: Path) -> None:
    """The tokenizer has a single-word token and a normalizer."""
    directory = model_directory("llama-grouped", tmp_path)
    values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    added = {**values["added_tokens"][0], "id": 283, "content": "orld", "special": False}
    values["added_tokens"].append({**added, "single_word": True})
    values["normalizer"] = {"type": "Lowercase"}
    (directory / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    edit_json(directory / "config.json", vocab_size=284)
    keys = keys_of(directory)
    tokenizer = tokenizer_from_metadata(keys)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in ("World orld", "orld World", "xorld", "orldorld ORLD"):
        expected = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_bos=False) == expected
    assert "tokenizer.trinity.rules" in keys
    del keys["tokenizer.trinity.rules"]
    plain = tokenizer_from_metadata(keys)
    assert plain.encode("World", add_bos=False) != tokenizer.encode("World", add_bos=False)


def test_composed_characters(tmp_path: Path) -> None:
    """NFC alone needs only a flag; the ids equal the library's."""
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer.json", normalizer={"type": "NFC"})
    keys = keys_of(directory)
    assert keys["tokenizer.trinity.nfc"] is True
    assert "tokenizer.trinity.rules" not in keys
    tokenizer = tokenizer_from_metadata(keys)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = "cafe\u0301 \u212b \uac00 \u1100\u1161"
    assert tokenizer.encode(text, add_bos=False) == library.encode(text).ids[1:]
    assert tokenizer.decode(tokenizer.encode(text)).endswith("caf\u00e9 \u00c5 \uac00 \uac00")
