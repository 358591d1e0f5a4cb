"""The child process of a trial (trial.py): compile, run and compare the first kernels of levels.

LLVM or the processor may end this process at any of them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence

from trinity_kernels.isa import amx_permitted
from trinity_kernels.selftest import check
from trinity_kernels.trial import KERNELS


def answer(levels: Sequence[str]) -> None:
    """Print [level, error or ""] as JSON for each level that the process survives."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "amx" in levels:
        amx_permitted()
    for level in levels:
        try:
            errors = [error for name, tag in KERNELS[level] if (error := check(name, level, tag))]
            why = f"it computes wrong results: {errors[0]}" if errors else ""
        except (MemoryError, OSError):
            raise
        except Exception as error:  # whatever Numba makes of what LLVM refuses politely
            why = f"it does not compile: {error}"[:300]
        print(json.dumps([level, why]), flush=True)
