"""Put the metadata of a GGUF file into the usual order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_MICROSOFTS = (
    "general.architecture", "general.name", "A.vocab_size", "A.context_length",
    "A.embedding_length", "A.block_count", "A.feed_forward_length", "A.rope.dimension_count",
    "A.attention.head_count", "A.attention.head_count_kv", "tokenizer.ggml.add_bos_token",
    "A.attention.layer_norm_rms_epsilon", "A.rope.freq_base", "general.file_type",
)  # fmt: skip
_LLAMA_CPPS = (
    "general.architecture", "general.name", "A.block_count", "A.context_length",
    "A.embedding_length", "A.feed_forward_length", "A.attention.head_count",
    "A.attention.head_count_kv", "A.rope.freq_base", "A.attention.layer_norm_rms_epsilon",
    "A.attention.key_length", "A.attention.value_length", "general.file_type", "A.vocab_size",
    "A.rope.dimension_count",
)  # fmt: skip
_MICROSOFT_FORM = ("bitnet-b1.58", "bitnet")
_SCALING = ("A.rope.scaling.type", "A.rope.scaling.factor")
_TOKENIZER = (
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
    "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.padding_token_id",
)  # fmt: skip
_LAST = ("tokenizer.chat_template", "general.quantization_version")
# Microsoft's file has neither: they follow from the embedding's width and the heads.
_NOT_MICROSOFTS = ("A.attention.key_length", "A.attention.value_length")


def file_keys(given: Mapping[str, object], file_type: int) -> dict[str, object]:
    """Return all keys of the file in order; ``given`` are the model's.

    Source of the order: Microsoft's BitNet b1.58 2B-4T file for BitNet's architectures, otherwise
    llama.cpp's convert_hf_to_gguf.py.
    """
    keys = {**given, "general.file_type": file_type, "general.quantization_version": 2}
    architecture = str(given["general.architecture"])
    first: tuple[str, ...] = _LLAMA_CPPS
    if architecture in _MICROSOFT_FORM:
        first = _MICROSOFTS
        for key in _NOT_MICROSOFTS:
            del keys[_full(key, architecture)]
        if given["tokenizer.ggml.model"] == "gpt2":
            rows = given[f"{architecture}.vocab_size"]
            assert isinstance(rows, int)
            keys["tokenizer.ggml.scores"] = np.zeros(rows, np.float32)
    usual = [_full(key, architecture) for key in (*first, *_SCALING, *_TOKENIZER)]
    others = [key for key in keys if key not in usual and key not in _LAST]
    return {key: keys[key] for key in (*usual, *others, *_LAST) if key in keys}


def _full(key: str, architecture: str) -> str:
    return f"{architecture}{key[1:]}" if key.startswith("A.") else key
