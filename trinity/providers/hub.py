"""Models on the Hugging Face hub: ``hf:USER/REPO[@REVISION][:FILE-OR-QUANT]``."""

from __future__ import annotations

import os

from trinity.formats.gguf_head import GGUFHead
from trinity.formats.provider import WeightProvider
from trinity.hub.name import FORM, PREFIX, parse_name
from trinity.options.load_options import LoadOptions
from trinity.providers.directory import DIRECTORY, describe_directory
from trinity.providers.gguf_file import GGUF_FILE
from trinity.providers.kind import Described, Kind, Notice


def _open(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    from trinity.hub.model import fetch

    path = fetch(parse_name(name), notice, _Tenths(notice)).path
    kind = DIRECTORY if os.path.isdir(path) else GGUF_FILE
    return kind.open(path, options, notice)


def _describe(name: str, notice: Notice) -> Described:
    from trinity.hub.model import describe

    described = describe(parse_name(name), notice, _Tenths(notice))
    if isinstance(described, GGUFHead):
        return described
    if os.path.isdir(described.path):
        return describe_directory(described.path, notice)
    return GGUF_FILE.open(described.path, LoadOptions(), notice)


class _Tenths:
    """Print a line for each tenth of a download."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._told = -1

    def __call__(self, done: int, total: int, file: str) -> None:
        tenth = 10 * done // max(total, 1)
        if tenth > self._told:
            self._told = tenth
            self._notice(f"downloading {file}: {10 * tenth}% of {total / 1e6:,.1f} MB")


HUB = Kind(FORM, lambda name: name.startswith(PREFIX), _open, _describe)
