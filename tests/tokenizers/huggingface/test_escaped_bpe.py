"""tokenizer.json with merges over characters and escaped spaces (GGUF's "gemma4")."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from tests.tokenizers.huggingface.directories import keys_of
from tests.tools.golden_models import edit_json
from trinity.errors import TrinityError, UnsupportedError
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.vocabulary import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED

SPACE = "\u2581"
ESCAPE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
SPLIT = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
ADDED = ("<pad>", "<eos>", "<bos>", "<unk>", "<|tool_call>", "<|turn>")
MERGES = [["t", "h"], ["e", SPACE], ["th", f"e{SPACE}"], [SPACE, SPACE]]


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    texts = [*ADDED, *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, *"abehlort"]
    texts += ["".join(pair) for pair in MERGES]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}
            for i, text in enumerate(ADDED)
        ],
        "normalizer": ESCAPE, "pre_tokenizer": SPLIT, "post_processor": None,
        "model": {
            "type": "BPE", "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>",
            "vocab": {text: i for i, text in enumerate(texts)}, "merges": MERGES,
        },
        **changes,
    }  # fmt: skip


def directory_of(folder: Path, **changes: Any) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(**changes)), "utf-8")
    (folder / "config.json").write_text('{"vocab_size": 280, "bos_token_id": 2, "eos_token_id": 1}')
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<bos>", "eos_token": "<eos>"}')
    return folder


@pytest.mark.parametrize("splitter", [SPLIT, None], ids=["split", "none"])
def test_keys_are_those_of_llama_cpps_converter(splitter: object, tmp_path: Path) -> None:
    keys = keys_of(directory_of(tmp_path, pre_tokenizer=splitter), "gemma4")
    name = "tokenizer.ggml."
    assert (keys[f"{name}model"], keys[f"{name}add_space_prefix"]) == ("gemma4", False)
    assert keys[f"{name}merges"] == [" ".join(pair) for pair in MERGES]
    assert set(keys[f"{name}scores"].tolist()) == {-1000.0, -10000.0}  # the latter of no tokens
    types = keys[f"{name}token_type"].tolist()
    assert types[:6] == [CONTROL] * 4 + [USER_DEFINED, CONTROL]
    assert types[6:262] == [BYTE] * 256
    assert set(types[262:275]) == {NORMAL}
    assert set(types[275:]) == {UNUSED}
    assert f"{name}pre" not in keys
    assert keys[f"{name}add_bos_token"] is True


def test_ids_by_merges(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_metadata(keys_of(directory_of(tmp_path), "gemma4"))
    ids = {text: i for i, text in enumerate(tokenizer_json()["model"]["vocab"])}
    found = tokenizer.encode("the  hat\u00e9<|turn>", add_bos=False, parse_special=True)
    spelled = [f"the{SPACE}", SPACE, "h", "a", "t", "<0xC3>", "<0xA9>", "<|turn>"]
    assert found == [ids[text] for text in spelled]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "NFC"}}, "must write spaces as U"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "must write spaces as U|library cannot read"),
        ({"model": {"type": "Unigram", "vocab": []}}, "not BPE with byte_fallback"),
        ({"model": {"type": "BPE", "byte_fallback": False}}, "not BPE with byte_fallback"),
    ],
)
def test_other_kinds_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        keys_of(directory_of(tmp_path, **changes), "gemma4")


@pytest.mark.parametrize("merges", [None, [["t"]], [["t", 5]]])
def test_malformed_merges(merges: object, tmp_path: Path) -> None:
    model = tokenizer_json()["model"] | {"merges": merges}
    with pytest.raises(TrinityError):
        keys_of(directory_of(tmp_path, model=model), "gemma4")


def test_a_place_for_images_beyond_the_embedding(tmp_path: Path) -> None:
    """Gemma 3 1B has the token and no row for it; any other token there is an error."""
    added = tokenizer_json()["added_tokens"]
    for text, is_known in (("<image_soft_token>", True), ("<other>", False)):
        more = {**added[0], "id": 275, "content": text}
        directory = directory_of(tmp_path, added_tokens=[*added, more])
        (directory / "config.json").write_text('{"vocab_size": 275}')
        if is_known:
            assert len(keys_of(directory, "gemma4")["tokenizer.ggml.tokens"]) == 275
        else:
            with pytest.raises(TrinityError, match="276 tokens, but vocab_size"):
                keys_of(directory, "gemma4")


@pytest.mark.parametrize("splitter", [SPLIT, None], ids=["split", "none"])
def test_200_texts_of_sarvams_pre_tokenizer(splitter: object, tmp_path: Path) -> None:
    """Directories of Sarvam's models get the keys that llama.cpp's converter writes of them."""
    draw = random.Random(str(splitter))
    pieces = [
        "the ",
        " heat",
        "\n",
        "\n\n",
        "  ",
        "\u0915\u093f\u0924\u093e\u092c ",
        "\u00e9t\u00e9",
    ]
    pieces += ["\t", "1234", "\U0001f600", SPACE, "\r\n", "th", "e"]
    texts = ["".join(draw.choices(pieces, k=draw.randint(1, 30))) for _ in range(200)]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = tokenizers.normalizers.Replace(" ", SPACE)
    made.train_from_iterator(
        (text.replace("\U0001f600", "") for text in texts[:100]),
        tokenizers.trainers.BpeTrainer(
            vocab_size=500, show_progress=False,
            special_tokens=[*ADDED, *(f"<0x{byte:02X}>" for byte in range(256))],
        ),
    )  # fmt: skip
    values = json.loads(made.to_str())
    values["added_tokens"] = values["added_tokens"][: len(ADDED)]
    values["pre_tokenizer"] = splitter
    library = tokenizers.Tokenizer.from_str(json.dumps(values))
    folder = directory_of(tmp_path)
    (folder / "tokenizer.json").write_text(json.dumps(values), "utf-8")
    edit_json(folder / "config.json", vocab_size=500)
    keys = keys_of(folder, "sarvam-moe")
    assert keys["tokenizer.ggml.model"] == "gpt2"
    assert keys["tokenizer.ggml.pre"] == "sarvam-moe"
    assert "tokenizer.ggml.scores" not in keys
    tokenizer = tokenizer_from_metadata(keys)
    for text in texts:
        ids = tokenizer.encode(text, add_bos=False)
        assert ids == library.encode(text, add_special_tokens=False).ids, text
        assert tokenizer.decode(ids) == text.replace(SPACE, " ")
