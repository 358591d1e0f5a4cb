"""Tokenizers that are gone leave no memory in the thread that used them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tokenizers.huggingface.directories import tokenizer_from
from tests.tokenizers.huggingface.test_escaped_bpe import SPACE, directory_of
from tests.tokenizers.small_vocabularies import bpe
from trinity.tokenizers import Tokenizer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")

TEXT = " ".join(f"word{number}" for number in range(3000))  # a word kept takes 300 bytes
MOST_KB = 4 << 10


def anonymous_kb() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found
    return int(found[1])


def of_a_directory(folder: Path) -> Tokenizer:
    splitter = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": True}
    return tokenizer_from(directory_of(folder, normalizer=None, pre_tokenizer=splitter))


@pytest.mark.few(1)
@pytest.mark.parametrize("make", [lambda _: bpe(), of_a_directory], ids=["gpt2", "rules"])
def test_words_of_tokenizers_that_are_gone(
    make: Callable[[Path], Tokenizer], tmp_path: Path
) -> None:
    for _ in range(3):
        expected = make(tmp_path).encode(TEXT)
    before = anonymous_kb()
    for _ in range(20):
        assert make(tmp_path).encode(TEXT) == expected
    assert anonymous_kb() - before < MOST_KB
