"""qwen.tiktoken gives the ids of the vocabulary of Qwen 2, which has the same tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tokenizers.huggingface.directories import keys_of, tokenizer_from
from tests.tools.golden_models import edit_json, model_directory
from trinity.errors import ConfigError, FormatError, TokenizerError
from trinity.formats import GGUFProvider
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.bpe import BYTE_CHARACTERS

BYTES = {character: byte for byte, character in BYTE_CHARACTERS.items()}
TEXT = "Don't re-re-read the ABC: 1234 caf\u00e9s, \u4f60\u597d!\n\n  <|im_start|>x<|im_end|>"


def write(directory: Path, tokens: Iterable[bytes], rows: int) -> Path:
    """Write a directory whose tokenizer is a qwen.tiktoken of these tokens."""
    lines = (f"{base64.b64encode(token).decode()} {i}" for i, token in enumerate(tokens))
    (directory / "qwen.tiktoken").write_text("\n".join(lines) + "\n", "utf-8")
    for name in (
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "generation_config.json",
    ):
        (directory / name).unlink(missing_ok=True)
    edit_json(directory / "config.json", vocab_size=rows)
    return directory


def small(directory: Path, *more: bytes) -> Path:
    tokens = [bytes([byte]) for byte in range(256)]
    return write(directory, [*tokens, *more], 256 + len(more) + 208)


@pytest.mark.full
def test_the_published_vocabulary(shared_data: Path, tmp_path: Path) -> None:
    """llama.cpp's texts, whose ids are those of Qwen 2's GGUF, and its merges."""
    file = shared_data / "vocab" / "ggml-vocab-qwen2.gguf"
    with GGUFProvider(file) as provider:
        metadata = dict(provider.metadata)
    texts = metadata["tokenizer.ggml.tokens"][:151643]
    tokens = (bytes(BYTES[character] for character in text) for text in texts)
    keys = keys_of(write(model_directory("llama-grouped", tmp_path), tokens, 151936))
    assert keys["tokenizer.ggml.pre"] == "qwen2"
    assert keys["tokenizer.ggml.merges"] == metadata["tokenizer.ggml.merges"]
    assert keys["tokenizer.ggml.tokens"][:151646] == metadata["tokenizer.ggml.tokens"][:151646]
    assert keys["tokenizer.ggml.tokens"][151850] == "<|extra_204|>"
    tokenizer = tokenizer_from_metadata(keys)
    inputs = file.with_name(file.name + ".inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    outputs = file.with_name(file.name + ".out").read_text("utf-8").splitlines()
    for text, ids in zip(inputs, outputs, strict=False):
        assert tokenizer.encode(text, add_bos=False) == [int(word) for word in ids.split()]


def test_ids_and_end_tokens(tmp_path: Path) -> None:
    directory = small(model_directory("llama-grouped", tmp_path), b"re", b"rea", b"read", b"ad")
    tokenizer = tokenizer_from(directory)
    assert tokenizer.encode("reread", add_bos=False) == [256, 258]
    ids = tokenizer.encode("<|im_start|>a<|im_end|>", add_bos=False, parse_special=True)
    assert ids == [261, 97, 262]
    assert {260, 262} <= set(tokenizer.eog_ids)
    assert tokenizer.decode(tokenizer.encode(TEXT, add_bos=False)) == TEXT


def test_chat_models_have_chatml(tmp_path: Path) -> None:
    directory = small(model_directory("llama-grouped", tmp_path))
    assert "tokenizer.chat_template" not in keys_of(directory)
    (directory / "generation_config.json").write_text(json.dumps({"chat_format": "chatml"}))
    assert "<|im_start|>system\n" in keys_of(directory)["tokenizer.chat_template"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:9], *lines[10:]], r"line 10 is b'Cg== 10'; expected a new token"),
        (lambda lines: lines[:255], "no token for the byte 255"),
        (lambda lines: [*lines, "YQ== 256"], "line 257 is"),
        (lambda lines: [*lines, "YWI 256"], "line 257 is"),
        (lambda lines: [*lines, "YWI= x"], "line 257 is"),
        (lambda lines: [*lines, "YWI="], "line 257 is"),
        (lambda lines: [*lines, "YWJj 256"], "token 256, b'abc', is not merged from two"),
        (lambda lines: [*lines, f"{'YWFh' * 3000} 256"], "tokens are too long"),
    ],
)
def test_damaged_files_are_refused(change: object, message: str, tmp_path: Path) -> None:
    directory = small(model_directory("llama-grouped", tmp_path))
    lines = (directory / "qwen.tiktoken").read_text("utf-8").splitlines()
    assert callable(change)
    (directory / "qwen.tiktoken").write_text("\n".join(change(lines)), "utf-8")
    with pytest.raises(TokenizerError, match=f"qwen.tiktoken: .*{message}"):
        keys_of(directory)


def test_sizes(tmp_path: Path) -> None:
    directory = small(model_directory("llama-grouped", tmp_path))
    edit_json(directory / "config.json", vocab_size=300)
    with pytest.raises(ConfigError, match="vocab_size"):
        keys_of(directory)
    (directory / "qwen.tiktoken").write_bytes(b"\n" * ((1 << 24) + 1))
    with pytest.raises(FormatError, match="exceeds"):
        keys_of(directory)
