"""The tokenizer of every family's small model gives the ids of its own library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import SHARED_DATA
from trinity.providers import open_weights
from trinity.tokenizers import tokenizer_from_metadata

FOLDERS = sorted(path.parent.name for path in SHARED_DATA.glob("architectures/*/model.gguf"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_ids_of_every_text(folder: str, shared_data: Path) -> None:
    path = shared_data / "architectures" / folder
    texts = json.loads((path / "golden.json").read_text())["tokenize"]
    assert len(texts) == 4
    with open_weights(path / "model.gguf") as provider:
        tokenizer = tokenizer_from_metadata(provider.metadata)
    for text, ids in texts.items():
        assert tokenizer.encode(text, add_bos=False) == ids, text
        assert tokenizer.decode(ids) == (" " * tokenizer.add_space_prefix + text).removeprefix(" ")
