"""BOS and EOS around a text, end-of-generation tokens, chat templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokenizers.huggingface.directories import (
    keys_of,
)
from tests.tools.golden_models import edit_json, model_directory
from trinity.errors import (
    TokenizerError,
    UnsupportedError,
)
from trinity.tokenizers import tokenizer_from_metadata


def test_without_a_post_processor_no_bos_is_added(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer.json", post_processor=None)
    assert keys_of(directory)["tokenizer.ggml.add_bos_token"] is False
    edit_json(directory / "tokenizer_config.json", add_bos_token=True)
    assert keys_of(directory)["tokenizer.ggml.add_bos_token"] is True


def test_a_token_in_front_that_is_not_bos_is_refused(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer_config.json", bos_token="<|eot_id|>")
    with pytest.raises(UnsupportedError, match="GGUF supports only bos"):
        keys_of(directory)


def test_ends_of_generation(tmp_path: Path) -> None:
    """EOS has its key, <|eot_id|> is known by its text, others get the keys for further ends."""
    directory = model_directory("llama-grouped", tmp_path)
    keys = keys_of(directory)
    assert keys["tokenizer.ggml.eos_token_id"] == 281
    assert "tokenizer.ggml.eot_token_id" not in keys
    assert tokenizer_from_metadata(keys).eog_ids == {281, 282}
    edit_json(directory / "generation_config.json", eos_token_id=[281, 282, 70])
    keys = keys_of(directory)
    assert keys["tokenizer.ggml.eot_token_id"] == 70
    assert tokenizer_from_metadata(keys).eog_ids == {281, 282, 70}


def test_special_ids_come_from_the_other_files_where_texts_are_missing(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "tokenizer_config.json").unlink()
    keys = keys_of(directory)
    assert keys["tokenizer.ggml.bos_token_id"] == 280
    assert keys["tokenizer.ggml.eos_token_id"] == 281
    assert "tokenizer.chat_template" not in keys


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool_use", "template": "t"}], None),
        (5, None),
    ],
)
def test_chat_template(template: object, expected: str | None, tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer_config.json", chat_template=template)
    assert keys_of(directory).get("tokenizer.chat_template") == expected
    (directory / "chat_template.jinja").write_text("\u00e9 of its own\n", "utf-8")
    assert keys_of(directory)["tokenizer.chat_template"] == "\u00e9 of its own\n"
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        keys_of(directory)
