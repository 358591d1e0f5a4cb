"""Vocabularies of Hugging Face directories: ids stay those of the libraries they are made for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from tests.matrix import some
from tests.tools.golden_models import FOLDER, edit_json, golden, model_directory
from trinity.errors import (
    ConfigError,
    InputError,
    TokenizerError,
    TrinityError,
    UnsupportedError,
)
from trinity.formats import GGUFProvider
from trinity.formats.hf_config import hf_config
from trinity.formats.json_object import read_json_object
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata
from trinity.tokenizers.pretokenizers import PRE_TOKENIZERS
from trinity.tools.convert.pre_tokenizer import pre_tokenizer_name
from trinity.tools.convert.tokenizer_keys import tokenizer_keys

BYTE_LEVEL = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False,
}  # fmt: skip
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NFC = {"type": "NFC"}


def converted(directory: Path) -> dict[str, Any]:
    """The tokenizer's keys that a directory gives."""
    values = read_json_object(str(directory / "config.json"))
    keys = tokenizer_keys(str(directory), hf_config(values, "config.json"), values)
    return {key: value for key, (value, _) in keys.items()}


def tokenizer_of(directory: Path) -> Tokenizer:
    return tokenizer_from_metadata(converted(directory))


def split(*regexes: str) -> dict[str, object]:
    """The pre-tokenizer of a tokenizer.json that splits by regexes, then takes bytes."""
    steps = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in regexes
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, BYTE_LEVEL]}


# --- real vocabularies, written as their tokenizer.json has them ---------------------------------

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


@pytest.mark.parametrize("name", some(REAL, ["gpt-2"]))
def test_real_vocabularies(name: str, shared_data: Path, tmp_path: Path) -> None:
    """Tokens, types and merges come back; every test text of llama.cpp has the ids it should."""
    file = shared_data / "vocab" / f"ggml-vocab-{name}.gguf"
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "generation_config.json").unlink()
    with GGUFProvider(file) as provider:
        metadata = dict(provider.metadata)
    write_real(directory, name, metadata)
    keys = converted(directory)
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


# --- names of pre-tokenizers ---------------------------------------------------------------------


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
)  # fmt: skip
def test_other_ways_to_say_it(description: object, name: str) -> None:
    assert pre_tokenizer_name(description, False) == name


@pytest.mark.parametrize(
    "description",
    [
        None,
        5,
        {"type": "Whitespace"},
        {"type": "Sequence"},
        {**GPT2, "add_prefix_space": True},
        split("[a-z]+"),
        {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": PRE_TOKENIZERS["gpt-2"].regexes[0]}},
    ],
)
def test_unknown_pre_tokenizers_are_refused(description: object, tmp_path: Path) -> None:
    assert pre_tokenizer_name(description, False) is None
    directory = model_directory("llama-grouped", tmp_path)
    values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    (directory / "tokenizer.json").write_text(json.dumps(values | {"pre_tokenizer": description}))
    with pytest.raises(TrinityError, match=r"known are.*llama-bpe|library refuses"):
        converted(directory)


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
    """Any known rules over Llama 3's vocabulary, in a form that the table does not have.

    What is found need not have that name, but cuts llama.cpp's test texts alike.
    """
    known = PRE_TOKENIZERS[name]
    file = shared_data / "vocab" / "ggml-vocab-llama-bpe.gguf"
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "generation_config.json").unlink()
    with GGUFProvider(file) as provider:
        write_real(directory, "llama-bpe", dict(provider.metadata))
    values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    values["pre_tokenizer"] = split(*(f"(?:{regex})" for regex in known.regexes))
    values["model"]["ignore_merges"] = known.ignore_merges
    (directory / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    assert pre_tokenizer_name(values["pre_tokenizer"], known.ignore_merges) is None
    ours = tokenizer_of(directory)
    library = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    for text in Path(f"{file}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n"):
        expected = library.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_bos=False) == expected


# --- byte-level BPE ------------------------------------------------------------------------------


def edit_model(directory: Path, **changes: object) -> None:
    """Set keys of tokenizer.json's model."""
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text("utf-8"))
    values["model"] |= changes
    path.write_text(json.dumps(values), "utf-8")


BPE_REFUSED: dict[str, tuple[dict[str, object], dict[str, object], type[TrinityError], str]] = {
    # changes of the file, changes of its model, error, message
    "word pieces": ({}, {"type": "WordPiece"}, UnsupportedError, "type 'WordPiece'"),
    "another normalizer": (
        {"normalizer": {"type": "Lowercase"}}, {}, UnsupportedError, "Lowercase",
    ),
    "prefix of continued words": (
        {}, {"continuing_subword_prefix": "##"}, UnsupportedError, "continuing_subword_prefix",
    ),
    "merges that are no list": ({}, {"merges": {}}, TokenizerError, "library refuses|no list"),
    "a merge of three": ({}, {"merges": ["a b c"]}, TokenizerError, "library refuses|not two"),
    "a merge of numbers": ({}, {"merges": [[1, 2]]}, TokenizerError, "library refuses|not two"),
    "a merge of no tokens": (
        {}, {"merges": ["\u0120zz q"]}, TokenizerError, "tokenizers library refuses it",
    ),
    "text as ids": ({}, {"vocab": {"a": "1"}}, TokenizerError, "library refuses|no whole numbers"),
    "added tokens that are no list": (
        {"added_tokens": 5}, {}, TokenizerError, "library refuses|added_tokens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BPE_REFUSED)
def test_bpe_that_is_refused(case: str, tmp_path: Path) -> None:
    changes, model, kind, message = BPE_REFUSED[case]
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer.json", **changes)
    edit_model(directory, **model)
    with pytest.raises(kind, match=message) as caught:
        converted(directory)
    assert "tokenizer.json" in str(caught.value)


def test_ids_without_a_token_are_filled(tmp_path: Path) -> None:
    """Embeddings often have more rows than there are tokens."""
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "config.json", vocab_size=288)
    keys = converted(directory)
    tokens = keys["tokenizer.ggml.tokens"]
    assert len(tokens) == 288
    assert tokens[283:] == [f"[PAD{i}]" for i in range(283, 288)]
    assert keys["tokenizer.ggml.token_type"].tolist()[283:] == [5] * 5


def test_rules_beyond_gguf_are_noticed_by_the_ids(tmp_path: Path) -> None:
    """A token that counts only as a whole word, which GGUF cannot say."""
    directory = model_directory("llama-grouped", tmp_path)
    values = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    added = {**values["added_tokens"][0], "id": 283, "content": "orld", "special": False}
    values["added_tokens"].append({**added, "single_word": True})
    (directory / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    edit_json(directory / "config.json", vocab_size=284)
    with pytest.raises(UnsupportedError, match="splits text differently"):
        converted(directory)


def test_without_a_post_processor_no_bos_is_added(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer.json", post_processor=None)
    assert converted(directory)["tokenizer.ggml.add_bos_token"] is False
    edit_json(directory / "tokenizer_config.json", add_bos_token=True)
    assert converted(directory)["tokenizer.ggml.add_bos_token"] is True


def test_a_token_in_front_that_is_not_bos_is_refused(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    edit_json(directory / "tokenizer_config.json", bos_token="<|eot_id|>")
    with pytest.raises(UnsupportedError, match="GGUF knows only one token there"):
        converted(directory)


# --- ends of generation and chat templates -------------------------------------------------------


def test_ends_of_generation(tmp_path: Path) -> None:
    """EOS has its key, <|eot_id|> is known by its text, others get the keys for further ends."""
    directory = model_directory("llama-grouped", tmp_path)
    keys = converted(directory)
    assert keys["tokenizer.ggml.eos_token_id"] == 281
    assert "tokenizer.ggml.eot_token_id" not in keys
    assert tokenizer_from_metadata(keys).eog_ids == {281, 282}
    edit_json(directory / "generation_config.json", eos_token_id=[281, 282, 70])
    keys = converted(directory)
    assert keys["tokenizer.ggml.eot_token_id"] == 70
    assert tokenizer_from_metadata(keys).eog_ids == {281, 282, 70}


def test_special_ids_come_from_the_other_files_where_texts_are_missing(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "tokenizer_config.json").unlink()
    keys = converted(directory)
    assert keys["tokenizer.ggml.bos_token_id"] == 280
    assert keys["tokenizer.ggml.eos_token_id"] == 281
    assert "tokenizer.chat_template" not in keys


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
    assert converted(directory).get("tokenizer.chat_template") == expected
    (directory / "chat_template.jinja").write_text("\u00e9 of its own\n", "utf-8")
    assert converted(directory)["tokenizer.chat_template"] == "\u00e9 of its own\n"
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="no UTF-8"):
        converted(directory)


# --- SentencePiece -------------------------------------------------------------------------------


def test_tokens_added_to_sentencepiece(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "added_tokens.json").write_text('{"<pad>": 301, "word": 302}')
    decoder = {"303": {"content": "<|im_end|>", "special": True}}
    edit_json(directory / "tokenizer_config.json", added_tokens_decoder=decoder)
    edit_json(directory / "config.json", vocab_size=304)
    keys = converted(directory)
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
        converted(directory)


def test_sentencepiece_of_another_type_is_refused(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    content = (directory / "tokenizer.model").read_bytes()
    assert b"\x18\x02" in content[-600:]  # TrainerSpec.model_type, BPE
    at = content.rindex(b"\x18\x02", 0, content.rindex(b"\x18\x02"))
    for place in (at, content.rindex(b"\x18\x02")):
        changed = content[:place] + b"\x18\x01" + content[place + 2 :]
        (directory / "tokenizer.model").write_bytes(changed)
        try:
            converted(directory)
        except UnsupportedError as error:
            message = str(error)
            break
    assert "a SentencePiece model of type 1" in message


def test_llama_3s_file_of_that_name_is_passed_over(tmp_path: Path) -> None:
    """Meta's own download has a tokenizer.model that is no SentencePiece model."""
    directory = model_directory("llama-grouped", tmp_path)
    (directory / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\nIw== 2\n")
    assert (
        tokenizer_of(directory).encode(golden("llama-grouped").text)
        == golden("llama-grouped").text_ids
    )
    (directory / "tokenizer.json").unlink()
    with pytest.raises(TrinityError, match="no SentencePiece model"):
        converted(directory)


def metaspace_json(**changes: Any) -> dict[str, Any]:
    """tokenizer.json as transformers writes it for the golden SentencePiece model."""
    from trinity.formats.sentencepiece_model import parse_sentencepiece_model

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
    expected = converted(directory)
    (directory / "tokenizer.model").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(metaspace_json(**form)), "utf-8")
    keys = converted(directory)
    assert keys["tokenizer.ggml.tokens"] == expected["tokenizer.ggml.tokens"]
    np.testing.assert_array_equal(
        keys["tokenizer.ggml.token_type"], expected["tokenizer.ggml.token_type"]
    )
    ours, theirs = tokenizer_from_metadata(keys), tokenizer_from_metadata(expected)
    text = golden("llama-sharded").text
    for sample in (text, "the other then hello", "  two  spaces ", "x", ""):
        assert ours.encode(sample) == theirs.encode(sample)
    assert ours.encode(text) == golden("llama-sharded").text_ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "NFKC"}}, "put the model's tokenizer.model beside it"),
        (
            {"pre_tokenizer": {"type": "Metaspace", "split": True}},
            "tokenizer.model beside it|refuse",
        ),
    ],
)
def test_sentencepiece_json_that_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.model").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(metaspace_json(**change)), "utf-8")
    with pytest.raises(TrinityError, match=message):
        converted(directory)


def test_merges_without_an_order_of_scores_are_refused(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.model").unlink()
    values = metaspace_json()
    values["model"]["merges"].append(values["model"]["merges"][0])
    (directory / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    with pytest.raises(UnsupportedError, match="do not stand together"):
        converted(directory)


def test_no_tokenizer(tmp_path: Path) -> None:
    directory = model_directory("llama-sharded", tmp_path)
    (directory / "tokenizer.model").unlink()
    with pytest.raises(InputError, match=r"no tokenizer\.json and no tokenizer\.model"):
        converted(directory)
