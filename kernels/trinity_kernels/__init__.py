"""The arithmetic of trinity: compiled kernels, usable without the engine."""

from __future__ import annotations

from collections.abc import Callable


def warmup(isa: str | None = None, progress: Callable[[str], None] | None = None) -> int:
    """Compile every kernel of a level into the cache on disk; the number of kernels.

    Raises: IsaError for a level that this machine cannot run; OSError where no code can be kept.
    """
    import numpy as np

    from trinity_kernels.code_files import cache_folder, take_cache_problem
    from trinity_kernels.isa import select_level
    from trinity_kernels.ops.select import largest
    from trinity_kernels.selftest import KERNELS, kernels_of
    from trinity_kernels.team import Team

    level = select_level(isa)
    if cache_folder() is None:
        raise OSError(take_cache_problem() or "compiled kernels cannot be kept")
    wanted = kernels_of(level)
    for number, (name, tag) in enumerate(wanted, 1):
        if progress:
            progress(f"compiling {name} {tag} ({number}/{len(wanted)})")
        KERNELS[name].kernel.address(level, tag)
    largest(np.zeros(1, np.float32), 1)
    Team(2).close()
    problem = take_cache_problem()
    if problem is not None:
        raise OSError(problem)
    return len(wanted)
