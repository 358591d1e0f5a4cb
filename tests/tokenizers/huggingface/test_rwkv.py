"""RWKV's vocabulary: the longest token at each place, from GGUF's keys and from the text file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tokenizers.huggingface.directories import keys_of
from tests.tools.golden_models import edit_json, model_directory
from trinity.errors import ConfigError, TokenizerError
from trinity.tokenizers import tokenizer_from_metadata

WORDS = (b"\n\n", b"User", b"Us", b" the", b" there", "é".encode(), b"\xe4\xbd", b"'", b"\\x", b'"',
         b"\r\n", b"th", b"the")  # fmt: skip
TOKENS = (*(bytes([byte]) for byte in range(256)), *WORDS)
TEXT = "User: there\r\n\n\n  the \\x 'é' \"你好\" ther\x00\t\n"


def write(directory: Path, lines: list[str], rows: int = 300) -> Path:
    for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json"):
        (directory / name).unlink(missing_ok=True)
    (directory / "rwkv_vocab_v20230424.txt").write_text("\n".join(lines) + "\n", "utf-8")
    edit_json(directory / "config.json", vocab_size=rows)
    return directory


def line(number: int, token: bytes) -> str:
    """As in the published file: text in Python's notation, or bytes if it is no UTF-8."""
    try:
        literal = repr(token.decode())
    except UnicodeDecodeError:
        literal = repr(token)
    return f"{number} {literal} {len(token)}"


def lines() -> list[str]:
    return [line(number, token) for number, token in enumerate(TOKENS, 1)]


def longest(text: str) -> list[int]:
    """Greedy search of the longest token, one byte after the other."""
    raw, ids = text.encode(), []
    while raw:
        size = max(len(token) for token in TOKENS if raw.startswith(token))
        ids.append(1 + max(i for i, token in enumerate(TOKENS) if token == raw[:size]))
        raw = raw[size:]
    return ids


def test_ids_bytes_and_special_tokens(tmp_path: Path) -> None:
    keys = keys_of(write(model_directory("llama-grouped", tmp_path), lines()))
    assert keys["tokenizer.ggml.model"] == "rwkv"
    assert keys["tokenizer.ggml.tokens"][:2] == ["<s>", "\\x00"]
    assert keys["tokenizer.ggml.tokens"][257] == "\\n\\n"
    tokenizer = tokenizer_from_metadata(keys)
    assert tokenizer.encode(TEXT) == longest(TEXT)
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert [tokenizer.bytes_of(i) for i in range(1, len(TOKENS) + 1)] == list(TOKENS)
    assert {0, 257} <= set(tokenizer.eog_ids)
    assert tokenizer.encode("<s>a", parse_special=True) == [0, 98]
    assert tokenizer.encode("<s>") == longest("<s>")


def test_any_text_is_decoded_again(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_metadata(
        keys_of(write(model_directory("llama-grouped", tmp_path), lines()))
    )
    chance = np.random.default_rng(3)
    for _ in range(200):
        pieces = chance.choice([*WORDS, b"x", b" ", "ü".encode()], 30)
        text = b"".join(pieces).decode("utf-8", "replace")
        assert tokenizer.encode(text) == longest(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_template_of_its_own(tmp_path: Path) -> None:
    keys = keys_of(write(model_directory("llama-grouped", tmp_path), lines()))
    assert "Assistant:" in keys["tokenizer.chat_template"]


@pytest.mark.parametrize(
    "bad",
    ["3 'x'", "3 'x' 2", "4 'x' 1", "3 x 1", "3 1 1", "3 '' 0", "3 ['a'] 1", "3 f('x') 1",
     "3 '\\ud800' 3", "", "3 '" + "x" * 3000 + "' 3000", "3 " + "(" * 500 + " 1"],
)  # fmt: skip
def test_damaged_lines_are_refused(bad: str, tmp_path: Path) -> None:
    damaged: list[Any] = [*lines()[:2], bad, *lines()[3:]]
    directory = write(model_directory("llama-grouped", tmp_path), damaged)
    with pytest.raises(TokenizerError, match="line 3 is"):
        keys_of(directory)


def test_tokens_that_are_missing_or_too_many(tmp_path: Path) -> None:
    directory = write(model_directory("llama-grouped", tmp_path), lines()[:200])
    with pytest.raises(TokenizerError, match="no token for the byte 200"):
        tokenizer_from_metadata(keys_of(directory)).encode("a")
    (directory / "rwkv_vocab_v20230424.txt").write_text("\n".join(lines()), "utf-8")
    edit_json(directory / "config.json", vocab_size=100)
    with pytest.raises(ConfigError, match="vocab_size"):
        keys_of(directory)


def test_a_token_that_would_make_long_texts_slow(tmp_path: Path) -> None:
    keys = keys_of(write(model_directory("llama-grouped", tmp_path), lines()))
    keys["tokenizer.ggml.tokens"][260] = "ab" + "c" * 511
    with pytest.raises(TokenizerError, match="has 513 bytes; RWKV's have at most 512"):
        tokenizer_from_metadata(keys).encode("a")
