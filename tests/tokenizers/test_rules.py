"""Rules of a tokenizer.json in a GGUF key run, or are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.processor_time import within
from tests.tokenizers.small_vocabularies import bpe_metadata
from trinity.errors import TrinityError
from trinity.tokenizers import tokenizer_from_metadata
from trinity.tokenizers.rules import KEY

BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def rules(**sections: Any) -> str:
    return json.dumps({"pre_tokenizer": BYTE_LEVEL, "model": {"type": "BPE"}, **sections})


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def nested(depth: int) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "NFC"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


REFUSED: dict[str, object] = {
    "a number": 5,
    "no JSON": "{",
    "a list": "[]",
    "text as a section": rules(normalizer="NFC"),
    "an unknown step": rules(normalizer={"type": "Zzz"}),
    "a step without a type": rules(normalizer={}),
    "a step whose type is an object": rules(normalizer={"type": {}}),
    "a step that reads files": rules(pre_tokenizer={"type": "Script", "path": "/etc/passwd"}),
    "nested steps": rules(normalizer=nested(3)),
    "steps that are no objects": rules(normalizer={"type": "Sequence", "normalizers": [1]}),
    "many steps": rules(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 99}),
    "a pattern that may take long": rules(normalizer=replaced({"Regex": "(a*)*b"}, "")),
    "a long pattern": rules(normalizer=replaced({"Regex": "a" * 999}, "")),
    "an empty pattern": rules(normalizer=replaced({"String": ""}, "a")),
    "texts that grow": rules(
        normalizer={
            "type": "Sequence",
            "normalizers": [replaced({"String": "a"}, "a" * 60)] * 3,
        }
    ),
    "a table that is none": rules(normalizer={"type": "Precompiled", "precompiled_charsmap": "A"}),
    "a step of wrong values": rules(normalizer={"type": "Strip", "strip_left": "x"}),
    "added tokens that are no list": rules(added_tokens=5),
    "an added token without text": rules(added_tokens=[{"id": 1, "content": ""}]),
    "an added token of another id": rules(added_tokens=[{"id": 10**9, "content": "zz"}]),
    "a long added token": rules(added_tokens=[{"id": 1, "content": "a" * 99999}]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rules_that_are_refused(case: str) -> None:
    """The error comes at once or with the first text, and names the key or the file."""
    metadata = {**bpe_metadata(), KEY: REFUSED[case]}

    def test() -> None:
        with pytest.raises(TrinityError):
            tokenizer_from_metadata(metadata).encode("abc a b")

    within(1.0, test)


def test_rules_that_are_run() -> None:
    metadata = {**bpe_metadata(), KEY: rules(normalizer={"type": "Lowercase"})}
    plain = tokenizer_from_metadata(bpe_metadata())
    ruled = tokenizer_from_metadata(metadata)
    assert ruled.encode("ABC a B", add_bos=False) == plain.encode("abc a b", add_bos=False)
    assert ruled.least_tokens("abc" * 1000) == 0  # texts may become shorter
