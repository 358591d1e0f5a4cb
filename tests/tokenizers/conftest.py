"""Fixtures: tokenizers of real vocabularies, each built once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tokenizers.small_vocabularies import Metadata, real_metadata
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata

MetadataOf = Callable[[str], Metadata]
TokenizerOf = Callable[[str], Tokenizer]


@pytest.fixture(scope="session")
def metadata_of(shared_data: Path) -> MetadataOf:
    """Return metadata by name: "llama-bpe" (a vocabulary) or "models/stories260K" (a model)."""

    @functools.cache
    def load(name: str) -> Metadata:
        folder = "" if "/" in name else "vocab/ggml-vocab-"
        return real_metadata(shared_data / f"{folder}{name}.gguf")

    return load


@pytest.fixture(scope="session")
def tokenizer_of(metadata_of: MetadataOf) -> TokenizerOf:
    """Return tokenizers by the same names."""
    return functools.cache(lambda name: tokenizer_from_metadata(metadata_of(name)))
