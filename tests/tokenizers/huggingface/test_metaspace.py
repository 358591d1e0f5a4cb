"""tokenizer.json of a SentencePiece tokenizer gives the ids of its tokenizer.model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.tokenizers.huggingface.directories import (
    keys_of,
)
from tests.tools.golden_models import FOLDER, golden, model_directory
from trinity.errors import TrinityError
from trinity.formats.sentencepiece_model import parse_sentencepiece_model
from trinity.tokenizers import tokenizer_from_metadata


def metaspace_json(**changes: Any) -> dict[str, Any]:
    """tokenizer.json as transformers writes it for the golden SentencePiece model."""
    model = parse_sentencepiece_model((FOLDER / "llama-sharded/tokenizer.model").read_bytes(), "")
    ids = {piece: i for i, piece in enumerate(model.pieces)}
    merged = [piece for piece in model.pieces[259:] if len(piece) > 1]
    merges = [
        [piece[:cut], piece[cut:]]
        for piece in merged
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    special = [
        {"id": i, "content": model.pieces[i], "special": True, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for i in range(3)
    ]  # fmt: skip
    bos = {"id": "<s>", "type_id": 0}
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": bos}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "model": {
            "type": "BPE", "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>",
            "vocab": ids, "merges": merges,
        },
        **changes,
    }  # fmt: skip


LEGACY = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    },
    "pre_tokenizer": None,
}


@pytest.mark.parametrize("form", [{}, LEGACY], ids=["metaspace", "legacy"])
def test_sentencepiece_as_tokenizer_json(form: dict[str, Any], tmp_path: Path) -> None:
    """The ids are the same as from tokenizer.model."""
    directory = model_directory("llama-sharded", tmp_path)
    expected = keys_of(directory)
    (directory / "tokenizer.model").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(metaspace_json(**form)), "utf-8")
    keys = keys_of(directory)
    assert keys["tokenizer.ggml.tokens"] == expected["tokenizer.ggml.tokens"]
    np.testing.assert_array_equal(
        keys["tokenizer.ggml.token_type"], expected["tokenizer.ggml.token_type"]
    )
    ours, theirs = tokenizer_from_metadata(keys), tokenizer_from_metadata(expected)
    text = golden("llama-sharded").text
    for sample in (text, "the other then hello", "x", ""):
        assert ours.encode(sample) == theirs.encode(sample)
    assert ours.encode(text) == golden("llama-sharded").text_ids


SCHEMES = {
    **{
        f"{scheme} {split}": {
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": "\u2581",
                "prepend_scheme": scheme,
                "split": split,
            },
        }
        for scheme in ("first", "never", "always")
        for split in (False, True)
    },
    "older": {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
    },
    "legacy": LEGACY,
}
TEXTS = (
    "  two  spaces ",
    " one",
    "a</s>b</s> c",
    "</s>the",
    "<s>the other",
    "\u2581x",
    " </s> </s>",
)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with tokenizer.model"])
@pytest.mark.parametrize("form", SCHEMES)
def test_where_a_space_is_put(form: str, beside: bool, tmp_path: Path) -> None:
    """Before the text, before each text between added tokens, or nowhere: the file decides.

    Other files in its folder have no effect.
    """
    directory = model_directory("llama-sharded", tmp_path)
    if not beside:
        (directory / "tokenizer.model").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(metaspace_json(**SCHEMES[form])), "utf-8")
    tokenizer = tokenizer_from_metadata(keys_of(directory))
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in TEXTS:
        expected = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_bos=False, parse_special=True) == expected, text
        library.encode_special_tokens = True
        expected = library.encode(text, add_special_tokens=False).ids
        library.encode_special_tokens = False
        assert tokenizer.encode(text, add_bos=False) == expected, text


def test_a_text_that_follows_others_gets_no_space(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.json").write_text(json.dumps(metaspace_json()), "utf-8")
    tokenizer = tokenizer_from_metadata(keys_of(directory))
    for text in ("the", "the</s>the", "</s>the", " the"):
        ids = tokenizer.encode(text, add_bos=False, parse_special=True, continuation=True)
        assert tokenizer.decode(ids, continuation=True) == text
    whole = tokenizer.encode("the other")
    assert tokenizer.decode(whole, skip_special=True) == "the other"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "NFKC"}, "pre_tokenizer": None}, "must write spaces as U"),
        ({"pre_tokenizer": {"type": "Metaspace", "split": True}}, "must write spaces|refuses"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 5}}, "must write spaces|refuses"),
    ],
)
def test_sentencepiece_json_that_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.model").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(metaspace_json(**change)), "utf-8")
    with pytest.raises(TrinityError, match=message):
        keys_of(directory)


def test_merges_without_an_order_of_scores_are_kept(tmp_path: Path) -> None:
    """If the pairs of a token are not adjacent, no scores reproduce their order."""
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.model").unlink()
    values = metaspace_json(**LEGACY)
    values["model"]["merges"].append(values["model"]["merges"][0])
    (directory / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    keys = keys_of(directory)
    assert len(keys["tokenizer.ggml.merges"]) == len(values["model"]["merges"])
    tokenizer = tokenizer_from_metadata(keys)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = golden("llama-sharded").text
    assert tokenizer.encode(text) == library.encode(text).ids
