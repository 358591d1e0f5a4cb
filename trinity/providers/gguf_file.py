"""GGUF files."""

from __future__ import annotations

import os

from trinity.formats.gguf import GGUFProvider
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.providers.kind import Kind, Notice
from trinity.providers.near import near_files


def _claims(name: str) -> bool:
    """Claim any file; if it is not GGUF, the reader's error says what it is."""
    return os.path.lexists(name) and not os.path.isdir(name)


def open_gguf(name: str, options: LoadOptions) -> GGUFProvider:
    """Open a GGUF file."""
    return GGUFProvider(name, i2s_layout=options.i2s_layout, tl_config=options.tl_config)


def _open(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    return open_gguf(name, options)


GGUF_FILE = Kind(
    "a GGUF file", _claims, _open, close_names=lambda name: near_files(name, (".gguf",))
)
