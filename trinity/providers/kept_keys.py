"""Cache a tokenizer's keys: computing them from a large tokenizer.json takes seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from trinity.cache.cache_folder import cache_folder, digest, states
from trinity.cache.private_folder import distrusted, make_private
from trinity.errors import TrinityError
from trinity.formats.gguf import GGUFProvider
from trinity.formats.gguf_writer import GGUFWriter

# Increase it if the same files would give other keys.
_FORMAT = 3
_SMALLEST = 1_000_000  # bytes of files; smaller ones are read as quickly as cached keys


def kept_keys(
    files: Mapping[str, str], what: object, make: Callable[[], dict[str, object]]
) -> Mapping[str, object]:
    """Return the result of ``make``, or the cached one for the same files in the same state.

    ``files`` maps names to paths; ``what`` is anything else that the result depends on. The cache
    contains a GGUF file without tensors, which appears only when it is complete. ``make`` is called
    each time if the cache cannot be written, is damaged, or if other users can write to it.
    """
    paths = [os.path.realpath(path) for path in files.values()]
    try:
        state = states(paths)
    except OSError:
        return make()
    if sum(size for size, _ in state) < _SMALLEST:
        return make()
    folder = cache_folder("tokenizers")
    if distrusted(str(folder)) is not None:
        return make()
    path = str(folder / f"{digest([_FORMAT, paths, state, what])}.gguf")
    if os.path.exists(path):
        with suppress(TrinityError), GGUFProvider(path) as kept:
            return {key: kept.metadata[key] for key in kept.metadata}
    keys = make()
    with suppress(TrinityError, OSError):
        make_private(str(folder))
        with GGUFWriter(path) as writer:
            for key, value in keys.items():
                writer.add(key, value, "array[string]" if isinstance(value, list) else None)
    return keys
