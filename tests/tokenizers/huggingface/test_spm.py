"""tokenizer.model, and tokens that other files add to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokenizers.huggingface.directories import (
    keys_of,
    tokenizer_from,
)
from tests.tools.golden_models import edit_json, golden, model_directory
from trinity.errors import (
    ConfigError,
    InputError,
    TokenizerError,
    TrinityError,
    UnsupportedError,
)
from trinity.tokenizers import tokenizer_from_metadata


def test_tokens_added_to_sentencepiece(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "added_tokens.json").write_text('{"<pad>": 301, "word": 302}')
    decoder = {"303": {"content": "<|im_end|>", "special": True}}
    edit_json(directory / "tokenizer_config.json", added_tokens_decoder=decoder)
    edit_json(directory / "config.json", vocab_size=304)
    keys = keys_of(directory)
    assert keys["tokenizer.ggml.tokens"][301:] == ["<pad>", "word", "<|im_end|>"]
    assert keys["tokenizer.ggml.token_type"].tolist()[301:] == [3, 4, 3]
    assert tokenizer_from_metadata(keys).encode("a word")[-1] == 302


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ('{"x": -1}', "the id -1"),
        ('{"x": "y"}', "expected content"),
        ('{"x": 99999999}', "100000000 tokens, but vocab_size"),
    ],
)
def test_added_tokens_that_lie(added: str, message: str, tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "added_tokens.json").write_text(added)
    with pytest.raises((TokenizerError, ConfigError), match=message):
        keys_of(directory)


def test_sentencepiece_of_another_type_is_refused(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    content = (directory / "tokenizer.model").read_bytes()
    assert b"\x18\x02" in content[-600:]  # TrainerSpec.model_type, BPE
    at = content.rindex(b"\x18\x02", 0, content.rindex(b"\x18\x02"))
    for place in (at, content.rindex(b"\x18\x02")):
        changed = content[:place] + b"\x18\x01" + content[place + 2 :]
        (directory / "tokenizer.model").write_bytes(changed)
        try:
            keys_of(directory)
        except UnsupportedError as error:
            message = str(error)
            break
    assert "a SentencePiece model of type 1" in message


def test_llama_3s_file_of_that_name_is_passed_over(tmp_path: Path) -> None:
    """Meta's download has a tokenizer.model that is not a SentencePiece model."""
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\nIw== 2\n")
    assert (
        tokenizer_from(directory).encode(golden("llama-grouped").text)
        == golden("llama-grouped").text_ids
    )
    (directory / "tokenizer.json").unlink()
    with pytest.raises(TrinityError, match="not a SentencePiece model"):
        keys_of(directory)


def test_no_tokenizer(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.model").unlink()
    with pytest.raises(InputError, match=r"neither tokenizer\.json nor tokenizer\.model"):
        keys_of(directory)
