"""The arithmetic of trinity: kernels, written in Python and compiled by Numba.

The package does not import trinity. Its parts, from the bottom:

    isa.py, processor.py, trial.py   instruction-set levels, and which of them this CPU runs
    _jit.py, instructions.py,        declare a kernel, an inlined function, a function of LLVM
    tags.py                          instructions; choose code by level and quantization type
    compiler.py, compiled_copy.py,   compile the declared functions
    deferred.py, numba_cache.py
    sources.py, code_store.py,       find compiled code in files, and load it
    code_files.py, flat_code.py, loaded_code.py
    simd.py, vectors.py, byte_dots.py, tiles.py, lanes.py, memory.py, scalars.py
                                     vectors, AMX tiles and scalars, as compiled code uses them
    quants/                          quantization types: layouts, decoders and readers
    quantizers/                      compiled searches for the scales of quantized blocks
    ops/, ops/matmul/                the kernels
    record.py, team.py               the record of a kernel's operands; threads that run plans
    crowding.py                      how many threads run beside other programs
    selftest/                        a comparison of every kernel with NumPy
"""

from __future__ import annotations

from collections.abc import Callable


def warmup(isa: str | None = None, progress: Callable[[str], None] | None = None) -> int:
    """Compile every kernel of a level into the cache on disk, and return the number of kernels.

    Raises: IsaError for a level that this machine cannot run; OSError if no code can be stored.
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
