"""Model files: each format gives a WeightProvider."""

from __future__ import annotations

import os

from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter
from trinity.formats.provider import Tensor, WeightProvider

__all__ = ["GGUFProvider", "GGUFWriter", "Tensor", "WeightProvider", "open_weights"]


def open_weights(
    path: str | os.PathLike[str],
    *,
    i2s_layout: str = "x86",
    tl_config: str | os.PathLike[str] | None = None,
) -> WeightProvider:
    """Open the model file at ``path``; a GGUF file, or the first one of a split model.

    Nothing is decoded yet, so a file without a usable configuration opens too. ``~`` is not
    expanded. Raises InputError where the file cannot be opened, FormatError where it is no model
    file or a malformed one, UnsupportedError for what trinity does not read. ``i2s_layout`` and
    ``tl_config``: see GGUFProvider.
    """
    return GGUFProvider(path, i2s_layout=i2s_layout, tl_config=tl_config)
