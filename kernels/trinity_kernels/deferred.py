"""What compiled code is written with; absent where functions stay Python.

Modules take these names from here and use them inside of functions alone, so that only a process
that compiles imports Numba and LLVM's types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity_kernels.isa import is_compiled_copy

__all__ = ["cgutils", "ir", "simd", "types"]


class _Absent:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: functions stay Python here")


if TYPE_CHECKING or is_compiled_copy():
    from llvmlite import ir
    from numba.core import cgutils, types

    from trinity_kernels import simd
else:
    cgutils = ir = simd = types = _Absent()
