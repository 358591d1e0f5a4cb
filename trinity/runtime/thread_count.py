"""How many threads compute."""

from __future__ import annotations

from collections.abc import Callable

from trinity_kernels.cores import default_threads

_MOST_PER_CORE = 4


def usable_threads(wanted: int | None, progress: Callable[[str], None] | None) -> int:
    """The number of threads for a model: ``wanted``, or one per core this process may use.

    More threads than cores wait for each other, so more than four per core are not started. The
    number of threads does not change results.
    """
    cores = default_threads()
    if wanted is None or wanted <= cores:
        return wanted or cores
    used = wanted if wanted <= _MOST_PER_CORE * cores else cores
    if progress:
        progress(
            f"warning: {wanted} threads, but this process may use {cores} cores: threads that wait "
            f"for a core delay all others; using {used}; omit threads (-t) for the fastest number"
        )
    return used
