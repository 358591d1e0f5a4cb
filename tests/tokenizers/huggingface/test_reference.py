"""A tokenizer file that harms the reference library gives an error at once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processor_time import within
from tests.tools.golden_models import model_directory
from trinity.errors import TokenizerError
from trinity.processes.confined import Confined
from trinity.tokenizers.huggingface import reference
from trinity.tokenizers.huggingface.reference import Reference, json_reference, model_reference

ROOT = Path(__file__).resolve().parents[3]
TEXTS = ("Hello  world, it's 3.14", "b")
Values = dict[str, Any]


@pytest.fixture(autouse=True)
def _a_process_for_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "Confined", Confined)


@pytest.fixture
def values(tmp_path: Path) -> Values:
    directory = model_directory("bitnet-packed", tmp_path)
    loaded: Values = json.loads((directory / "tokenizer.json").read_text())
    return loaded


def answered(call: Callable[[], Reference]) -> Reference | str:
    """What it gives, or says."""
    try:
        return call()
    except TokenizerError as error:
        return str(error)


def nested(kind: str, name: str, inner: object, depth: int) -> object:
    for _ in range(depth):
        inner = {"type": kind, name: [inner]}
    return inner


NFC = {"type": "NFC"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PADDING = {
    "strategy": {"Fixed": 1 << 50}, "direction": "Right", "pad_to_multiple_of": None,
    "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
}  # fmt: skip
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[A]", "type_id": 0}}] * 3,
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"[A]": {"id": "[A]", "ids": list(range(50)), "tokens": ["x"] * 2}},
}
HARMFUL: dict[str, Values] = {
    "a nest of normalizers": {"normalizer": nested("Sequence", "normalizers", NFC, 90)},
    "a nest without end": {"normalizer": nested("Sequence", "normalizers", NFC, 400)},
    "text that multiplies": {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "l" * 1000}]
            * 4,
        }
    },
    "text that doubles": {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "l"}, "content": "ll"}] * 60,
        }
    },
    "a regex that tries everything": {
        "pre_tokenizer": {
            "type": "Split",
            "behavior": "Isolated",
            "invert": False,
            "pattern": {"Regex": "(?:(?:(?:[a-z ,0-9]+)+)+)+[A-Z]{3}"},
        }
    },
    "a regex of many repeats": {
        "pre_tokenizer": {
            "type": "Split",
            "behavior": "Isolated",
            "invert": False,
            "pattern": {"Regex": "(((.{1000}){1000}){1000}){1000}"},
        }
    },
    "a template that contradicts itself": {"post_processor": TEMPLATE},
    "Unigram": {"model": {"type": "Unigram", "unk_id": 7, "vocab": [["a", 0.0]]}},
    "a garbled character map": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAgP////8AAA=="}
    },
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", HARMFUL)
def test_what_harms_the_library(name: str, values: Values) -> None:
    found = within(
        5.0,  # of this process
        lambda: answered(lambda: json_reference(values | HARMFUL[name], "t.json", TEXTS)),
        time.process_time,
    )
    if isinstance(found, str):
        assert found.startswith("t.json: the tokenizers library cannot read it: it ")
    else:
        assert set(found.ids) == set(TEXTS)


@pytest.mark.full
def test_panics_and_limits_are_refusals(values: Values) -> None:
    for name, reason in (
        ("text that multiplies", "memory|ended by|seconds"),
        ("text that doubles", "memory|ended by|seconds"),
        ("a nest without end", "recursion limit"),
    ):
        with pytest.raises(TokenizerError, match=reason):
            json_reference(values | HARMFUL[name], "t.json", TEXTS)


@pytest.mark.full
def test_padding_and_truncation_are_not_handed_over(values: Values) -> None:
    plain = json_reference(values, "t.json", TEXTS)
    truncation = {"max_length": 1, "strategy": "OnlyFirst", "stride": 9, "direction": "Right"}
    padded = json_reference({**values, "padding": PADDING, "truncation": truncation}, "t", TEXTS)
    assert padded == plain


@pytest.mark.full
def test_character_maps_of_sentencepiece(tmp_path: Path) -> None:
    """The normalizer's character map has random bytes, which crashed older libraries."""
    directory = model_directory("llama-sharded", tmp_path)
    content = (directory / "tokenizer.model").read_bytes()
    random.seed(1)
    for length in (4, 60, 100):
        noise = random.randbytes(length)
        normalizer = b"\x1a" + bytes([length + 2]) + b"\x12" + bytes([length]) + noise
        model = content + normalizer
        found = answered(lambda model=model: model_reference(model, "t.model", TEXTS))
        if isinstance(found, str):
            assert found.startswith("t.model: the sentencepiece library cannot read it: it ")


def test_a_file_that_is_no_model() -> None:
    with pytest.raises(TokenizerError, match="the sentencepiece library cannot read it"):
        model_reference(b"\xff" * 100, "t.model", TEXTS)


@pytest.mark.full
def test_from_an_editable_installation(values: Values) -> None:
    """An import hook finds the packages; the child has no hook and they are not in sys.path."""
    code = f"""
    import json, sys
    outside = [p for p in sys.path if not os.path.exists(os.path.join(p, "trinity_kernels"))]
    sys.path[:] = [*outside, {str(ROOT)!r}, {str(ROOT / "kernels")!r}]
    import trinity_kernels
    from trinity.tokenizers.huggingface.reference import json_reference
    sys.path[:] = outside
    print(json_reference(json.load(sys.stdin), "t.json", ["Hello"]).ids["Hello"])
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import os\n{textwrap.dedent(code)}"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        cwd=tempfile.gettempdir(),
        timeout=120,
    )
    expected = json_reference(values, "t.json", ["Hello"]).ids["Hello"]
    assert (done.stderr, done.stdout) == ("", f"{expected}\n")
