"""The only place that calls Numba's decorators: what is compiled, and when.

A kernel is one Python function ``f(isa, qt, record, thread, threads)``. ``isa`` and ``qt`` are
values without data whose types choose the code, so one body is compiled per level and per
quantization type, each cached under its own signature. No floating-point relaxation: multiply and
add stay separate, sums keep their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
from numba.core import config, types
from numba.core.ccallback import CFunc
from numba.core.datamodel.models import OpaqueModel
from numba.extending import overload, register_model

from trinity_kernels.code_files import CodeCache, cache_folder
from trinity_kernels.isa import jit_disabled
from trinity_kernels.processor import target

MIN_NUMBA, MAX_NUMBA = (0, 65), (0, 69)
_version = tuple(int(p) for p in numba.__version__.split(".")[:2])
if not MIN_NUMBA <= _version < MAX_NUMBA:
    raise ImportError(
        f"trinity_kernels needs numba >= {MIN_NUMBA[0]}.{MIN_NUMBA[1]} and "
        f"< {MAX_NUMBA[0]}.{MAX_NUMBA[1]}, found {numba.__version__}: "
        "install a version in that range"
    )

_lock = threading.RLock()
if not jit_disabled():
    target()  # before the first decorator: Numba is told there what the processor has


def inline(function: Callable[..., Any]) -> Any:
    """A function called by kernels; LLVM inlines it."""
    if jit_disabled():
        return function
    return numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function)


def entry(function: Callable[..., Any]) -> Any:
    """A function called from Python, compiled at its first call and cached; releases the GIL."""
    if jit_disabled():
        return function
    compiled = numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function)
    folder = cache_folder()
    if folder is not None:
        with _cache_in(folder):
            compiled._cache = CodeCache(function)
    return compiled


def choose(stub: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """The decorated function gets the types of ``stub``'s arguments and returns the code to use.

    It is how an ``isa`` or ``qt`` picks a body. Uncompiled, the stub itself runs.
    """
    if jit_disabled():
        return lambda chooser: chooser
    return overload(stub, strict=False)  # type: ignore[no-any-return]


class _cache_in:  # noqa: N801
    """Point Numba's cache at a folder for the length of a ``with``."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        _lock.acquire()
        self.saved = config.CACHE_DIR
        config.CACHE_DIR = str(self.folder) if self.folder else ""

    def __exit__(self, *exc: object) -> None:
        config.CACHE_DIR = self.saved
        _lock.release()


class Tag(types.Type):
    """A value without data whose type chooses code: an ISA level or a quantization type."""

    def __init__(self, kind: str, value: str) -> None:
        self.kind = kind
        self.value = value
        super().__init__(name=f"{kind}_{value}")


@register_model(Tag)
class _TagModel(OpaqueModel):  # type: ignore[misc]
    pass


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is LLVM instructions."""
    return numba.extending.intrinsic(function)  # type: ignore[no-any-return]


class Kernel:
    """One operation's code; ``address(level, quant)`` compiles it, or loads it from the cache."""

    def __init__(self, function: Callable[..., None], uses_tiles: bool = False) -> None:
        self.function = function
        self.uses_tiles = uses_tiles
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._compiled: dict[tuple[str, str], Any] = {}

    def level_of(self, level: str) -> str:
        """The level whose code serves ``level``: amx only differs where tiles are used."""
        return "avx512vnni" if level == "amx" and not self.uses_tiles else level

    def address(
        self, level: str, quant: str = "none", compiling: Callable[[], None] | None = None
    ) -> int:
        """The address of the compiled code for a level and a quantization type.

        ``compiling`` is called first where neither this process nor the cache has the code.
        """
        level = self.level_of(level)
        key = (level, quant)
        if jit_disabled():
            tags = SimpleNamespace(value=level), SimpleNamespace(value=quant)
            _PYTHON_KERNELS.append(partial(self.function, *tags))
            return len(_PYTHON_KERNELS) - 1
        with _lock:
            if key not in self._compiled:
                self._compiled[key] = self._compile(level, quant, compiling)
            address: int = self._compiled[key].address
            return address

    def _compile(self, level: str, quant: str, compiling: Callable[[], None] | None) -> CFunc:
        args = (Tag("isa", level), Tag("quant", quant), types.intp, types.intp, types.intp)
        options = {"nopython": True, "error_model": "numpy", "boundscheck": False}
        folder = cache_folder()
        compiled = _Code(self.function, (args, types.void), locals={}, options=options)
        compiled.compiling = compiling
        if folder is not None:
            with _cache_in(folder):
                compiled.enable_caching()
        compiled.compile()
        return compiled


class _Code(CFunc):
    """A kernel's code that tells when it is compiled and not loaded from the cache."""

    compiling: Callable[[], None] | None = None

    def enable_caching(self) -> None:
        self._cache = CodeCache(self._pyfunc)  # type: ignore[attr-defined]

    def _compile_uncached(self) -> Any:
        if self.compiling is not None:
            self.compiling()
        return super()._compile_uncached()  # type: ignore[misc]


_PYTHON_KERNELS: list[Callable[..., None]] = []


def python_kernel(index: int) -> Callable[..., None]:
    """The uncompiled kernel whose ``address`` was ``index``, under NUMBA_DISABLE_JIT."""
    return _PYTHON_KERNELS[index]


def kernel(function: Callable[..., None]) -> Kernel:
    """Declare a kernel: ``f(isa, qt, record, thread, threads)``."""
    return Kernel(function)


def tile_kernel(function: Callable[..., None]) -> Kernel:
    """Declare a kernel whose amx code differs from its avx512vnni code."""
    return Kernel(function, uses_tiles=True)
