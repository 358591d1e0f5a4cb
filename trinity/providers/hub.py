"""Models on the Hugging Face hub: ``hf:USER/REPO[@REVISION][:FILE-OR-QUANT]``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from trinity.errors import InputError
from trinity.formats.gguf_head import GGUFHead
from trinity.formats.provider import WeightProvider
from trinity.hub.name import FORM, MAIN, PREFIX, parse_name
from trinity.options.load_options import LoadOptions
from trinity.providers.directory import DIRECTORY, describe_directory
from trinity.providers.gguf_file import GGUF_FILE, open_gguf
from trinity.providers.kind import Described, Kind, Notice

# A page or file in a browser, and a repository after the hub's host, as Ollama names it.
_ADDRESS = (
    r"(?:https?://[^/]+|[\w-]+\.[\w.-]+)/(?P<repository>[^/]+/[^/:?]+)"
    r"(?:/(?:blob|resolve|raw|tree)/(?P<revision>[^/?]+)(?:/(?P<file>[^?]+))?)?"
    r"(?::(?P<quantization>[^/?]+))?/?(?:\?.*)?"
)
_FILES = (".gguf", ".safetensors")


def _open(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    from trinity.hub.model import fetch

    found = fetch(parse_name(name), notice, _Tenths(notice))
    if os.path.isdir(found.path):
        return DIRECTORY.open(found.path, options, notice)
    provider = open_gguf(found.path, options)
    provider.mmproj = found.mmproj
    return provider


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


def _similar(typed: str) -> Iterator[str]:
    """The name on the hub for the address of a page or file, or for a name without the prefix."""
    address = re.fullmatch(_ADDRESS, typed)
    if address is not None:
        revision, file = address["revision"], address["file"] or address["quantization"]
        wanted = f"@{revision}" if revision and revision != MAIN else ""
        named = f"{address['repository']}{wanted}" + (f":{file}" if file else "")
    elif typed.endswith(_FILES) or os.path.isdir(typed.partition("/")[0]):
        return  # a path in this folder
    else:
        named = typed
    with suppress(InputError):
        parse_name(named)
        yield PREFIX + named


HUB = Kind(FORM, lambda name: name.startswith(PREFIX), _open, _describe, close_names=_similar)
