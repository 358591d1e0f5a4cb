"""Writes Hugging Face directories with any tokenizer, and reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.golden_models import edit_json
from trinity.formats.huggingface.files import files_of_directory
from trinity.formats.json_object import read_json_object
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.huggingface.metadata import tokenizer_metadata
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NFC = {"type": "NFC"}


def keys_of(directory: Path, model: str | None = None) -> dict[str, Any]:
    """The tokenizer's keys that a directory gives, of a class that means the kind ``model``."""
    files = files_of_directory(str(directory))
    rows = read_json_object(files["config.json"])["vocab_size"]
    assert isinstance(rows, int)
    return tokenizer_metadata(files, str(directory), rows, model)


def tokenizer_from(directory: Path) -> Tokenizer:
    return tokenizer_from_metadata(keys_of(directory))


def split(*regexes: str) -> dict[str, object]:
    """The pre-tokenizer of a tokenizer.json that splits by regexes, then takes bytes."""
    steps = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in regexes
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, BYTE_LEVEL]}


REAL: dict[str, tuple[object, object, bool]] = {
    # name: pre-tokenizer, normalizer, ignore_merges
    "llama-bpe": (split(*PRE_TOKENIZERS["llama-bpe"].regexes), None, True),
    "qwen2": (split(*PRE_TOKENIZERS["qwen2"].regexes), NFC, False),
    "gpt-2": (GPT2, None, False),
}


def write_real(directory: Path, name: str, metadata: Mapping[str, Any]) -> None:
    """config.json, tokenizer.json and tokenizer_config.json from a GGUF vocabulary."""
    pre_tokenizer, normalizer, ignore_merges = REAL[name]
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    kinds = dict(enumerate(np.asarray(types).tolist()))
    merges = metadata["tokenizer.ggml.merges"]
    added = [
        {
            "id": i, "content": token, "special": kinds[i] == 3, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
        }
        for i, token in enumerate(tokens) if kinds[i] in (3, 4)
    ]  # fmt: skip
    bos = metadata["tokenizer.ggml.bos_token_id"]
    model = {
        "type": "BPE",
        "ignore_merges": ignore_merges,
        "vocab": {token: i for i, token in enumerate(tokens) if kinds[i] == 1},
        "merges": [merge.split(" ") for merge in merges] if ignore_merges else list(merges),
    }
    whole: dict[str, object] = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": GPT2,
        "decoder": GPT2,
        "model": model,
    }
    (directory / "tokenizer.json").write_text(json.dumps(whole), "utf-8")
    config = {
        "bos_token": tokens[bos],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    changes = {"vocab_size": len(tokens), "bos_token_id": None, "eos_token_id": None}
    edit_json(directory / "config.json", **changes)
