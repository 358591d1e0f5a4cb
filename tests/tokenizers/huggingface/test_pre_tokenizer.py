"""Names of pre-tokenizers, found from their description or their ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers

from tests.tokenizers.huggingface.directories import (
    BYTE_LEVEL,
    GPT2,
    keys_of,
    split,
    tokenizer_from,
    write_real,
)
from tests.tools.golden_models import model_directory
from trinity.errors import (
    TrinityError,
)
from trinity.formats import GGUFProvider
from trinity.tokenizers.huggingface.pre_tokenizer import pre_tokenizer_name
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_known_pre_tokenizer_is_found_by_its_regexes(name: str) -> None:
    """Several names may have one set of rules; the one found means the same."""
    known = PRE_TOKENIZERS[name]
    found = pre_tokenizer_name(split(*known.regexes), known.ignore_merges)
    assert found is not None
    assert PRE_TOKENIZERS[found].regexes == known.regexes
    assert PRE_TOKENIZERS[found].ignore_merges == known.ignore_merges


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (GPT2, "gpt-2"),
        (split(*PRE_TOKENIZERS["gpt-2"].regexes), "gpt-2"),
        (
            {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2],
            },
            "starcoder",
        ),
        (
            {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": PRE_TOKENIZERS["qwen2"].regexes[0]},
                        "behavior": "Removed",
                        "invert": True,
                    },
                    BYTE_LEVEL,
                ],
            },
            "qwen2",
        ),
    ],
)
def test_other_ways_to_say_it(description: object, name: str) -> None:
    assert pre_tokenizer_name(description, False) == name


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "description",
    [
        None,
        5,
        {"type": "Whitespace"},
        {"type": "Sequence"},
        split("(a+)+$"),
        {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": PRE_TOKENIZERS["gpt-2"].regexes[0]}},
    ],
)
def test_unknown_pre_tokenizers_are_refused(description: object, tmp_path: Path) -> None:
    assert pre_tokenizer_name(description, False) is None
    directory = model_directory("llama-grouped", tmp_path)
    values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    (directory / "tokenizer.json").write_text(json.dumps(values | {"pre_tokenizer": description}))
    with pytest.raises(
        TrinityError, match=r"trinity knows.*llama-bpe|library cannot read|without Byte"
    ):
        keys_of(directory)


def test_merges_that_are_ignored_or_not_are_part_of_the_rule() -> None:
    regexes = split(*PRE_TOKENIZERS["llama-bpe"].regexes)
    assert pre_tokenizer_name(regexes, True) == "llama-bpe"
    assert pre_tokenizer_name(regexes, False) == "dbrx"
    assert pre_tokenizer_name(GPT2, True) is None


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama-bpe", "dbrx", "falcon"])
def test_rules_written_in_another_way_are_found_by_their_ids(
    name: str, shared_data: Path, tmp_path: Path
) -> None:
    """The rules split texts for GPT-2's vocabulary and are written in a form that the table lacks.

    The rules found may have another name, but split llama.cpp's test texts the same way.
    """
    known = PRE_TOKENIZERS[name]
    file = shared_data / "vocab" / "ggml-vocab-gpt-2.gguf"
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "generation_config.json").unlink()
    with GGUFProvider(file) as provider:
        write_real(directory, "gpt-2", dict(provider.metadata))
    values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    values["pre_tokenizer"] = split(*(f"(?:{regex})" for regex in known.regexes))
    values["model"]["ignore_merges"] = known.ignore_merges
    (directory / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    assert pre_tokenizer_name(values["pre_tokenizer"], known.ignore_merges) is None
    ours = tokenizer_from(directory)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in Path(f"{file}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n"):
        expected = library.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_bos=False) == expected
