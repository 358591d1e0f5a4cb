"""Quantize a model when it is loaded, once, into a cached file that later starts map."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from trinity.cache.cache_folder import cache_folder, digest, states
from trinity.cache.private_folder import distrusted, make_private
from trinity.config import ModelConfig
from trinity.errors import FormatError, InputError
from trinity.formats.defaults import Defaults
from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_order import with_whole_tables
from trinity.formats.huggingface.files import model_name
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.quantization.assignment import Overrides
from trinity.quantization.mixes import find_mix
from trinity.quantization.progress import each_tenth
from trinity.quantization.quantization import write_quantized

# Increase it if the same source would give another file.
_FORMAT = 1
Notice = Callable[[str], None]


class Quantized(GGUFProvider):
    """A provider of ``source`` with the quantized weights and the keys of the GGUF file ``path``.

    Configuration and defaults are those of the source, which may have values without a GGUF key.
    """

    def __init__(self, source: WeightProvider, path: str) -> None:
        self._source = source
        super().__init__(path)

    @property
    def path(self) -> str:
        """The path of the source."""
        return self._source.path

    @property
    def paths(self) -> list[str]:
        """The source's files and the file of the weights."""
        return [*self._source.paths, *super().paths]

    @property
    def notes(self) -> list[str]:
        """Notes about the source."""
        return self._source.notes

    @property
    def config(self) -> ModelConfig:
        """The source's configuration, with the sizes of the file's tables."""
        return with_whole_tables(self._source.config)

    @property
    def defaults(self) -> Defaults:
        """The source's defaults."""
        return self._source.defaults

    def override(self, values: Mapping[str, bool | int | float | str]) -> None:
        """As ``GGUFProvider.override``; InputError if the source is not a GGUF file."""
        if not isinstance(self._source, GGUFProvider):
            raise InputError(f"{self.path}: override_kv only applies to GGUF files", "override_kv")
        self._source.override(values)
        super().override(values)

    def close(self) -> None:
        """Close the source and the file of the weights."""
        super().close()
        self._source.close()


def quantized(
    provider: WeightProvider, options: LoadOptions, type: str, notice: Notice
) -> Quantized:
    """Return the model with its weights in the mix ``type``; quantize it if it is not cached.

    The cached file's name depends on the paths, sizes and modification times of the source's files.
    If the source changes, it is quantized again, and the old file is removed. The file appears
    under its name only when it is complete. If two processes quantize at once, the later file
    stays. Files of other models are never removed.

    ``notice`` is called with lines of progress. Raises InputError for an unknown type, for weights
    that are quantized already, and if the cache cannot be written.
    """
    mix = find_mix(type, "quantize")
    folder = cache_folder("weights")
    if why := distrusted(str(folder)):
        raise InputError(
            f"{folder}: quantized weights cannot be cached there: {why}, or set TRINITY_CACHE_DIR "
            "to another folder"
        )
    stem = f"{_plain(provider.path)}-{mix.name}-{digest(_places(provider, options))}"
    path = str(folder / f"{stem}-{digest(_state(provider))}.gguf")
    if not os.path.exists(path):
        _make_folder(folder)
        notice(f"quantizing to {mix.name}, cached in {path}")
        write_quantized(
            provider, path, mix, Overrides(), threads=options.threads, room=_room(folder),
            progress=each_tenth(notice, f"quantizing to {mix.name}"),
        )  # fmt: skip
        _remove_older(folder, stem, path)
    try:
        return Quantized(provider, path)
    except FormatError as error:
        raise FormatError(
            f"{error}; remove the file, which is recreated at the next start"
        ) from error


def _make_folder(folder: Path) -> None:
    try:
        make_private(str(folder))
    except OSError as error:
        raise InputError(
            f"{folder}: quantized weights cannot be cached there: {error.strerror}; set "
            "TRINITY_CACHE_DIR to a writable folder"
        ) from error


def _room(folder: Path) -> str:
    """Return advice for a full disk."""
    kept = [path.stat().st_size for path in folder.glob("*.gguf") if path.is_file()]
    return (
        f"trinity keeps {len(kept)} files of {sum(kept):,} bytes there: `trinity list` "
        "shows them, `rm` removes them by name; or set TRINITY_CACHE_DIR to a folder on another "
        "disk"
    )


def _places(provider: WeightProvider, options: LoadOptions) -> object:
    """Return what identifies the model and how it is read."""
    config = None if options.tl_config is None else os.path.realpath(os.fsdecode(options.tl_config))
    paths = [os.path.realpath(path) for path in provider.paths]
    return [paths, options.i2s_layout, config, options.weight_scale]


def _state(provider: WeightProvider) -> object:
    """Return what identifies the state of its files and the quantization."""
    return [_FORMAT, states(provider.paths)]


def _plain(path: str) -> str:
    """Return a model's name as a part of a file name."""
    name = model_name(path).removesuffix(".gguf")
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)[:60] or "model"


def _remove_older(folder: Path, stem: str, path: str) -> None:
    """Remove the files that were quantized from an earlier state of the model's files."""
    for other in folder.glob(f"{stem}-*.gguf"):
        if str(other) != path:
            with suppress(OSError):
                other.unlink()
