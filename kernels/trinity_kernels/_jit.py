"""The only place that calls Numba's decorators: what is compiled, and when.

A kernel is one Python function ``f(isa, qt, record, thread, threads)``. ``isa`` and ``qt`` are
values without data whose types choose the code, so one body is compiled per level and per
quantization type, each cached under its own signature. No floating-point relaxation: multiply and
add stay separate, sums keep their order.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numba
import numpy as np
from numba.core import compiler, config, types
from numba.core.ccallback import CFunc, _CFuncCompiler  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.datamodel.models import OpaqueModel
from numba.core.registry import cpu_target
from numba.extending import overload, register_model

from trinity_kernels.code_files import CodeCache, cache_folder
from trinity_kernels.isa import BASES, jit_disabled
from trinity_kernels.processor import target
from trinity_kernels.sources import digest_of, module_of
from trinity_kernels.uninterrupted import uninterrupted

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

if hasattr(os, "register_at_fork"):
    # A fork waits for the compiler, whose locks and tables the child could not use half-way.
    os.register_at_fork(
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_lock.release,
    )


def inline(function: Callable[..., Any]) -> Any:
    """A function called by kernels; LLVM inlines it."""
    if jit_disabled():
        return function
    return numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function)


class Entry:
    """A function called from Python by its address, which releases the GIL.

    Its arguments are integers, addresses among them, and floats, as it annotates them; an array
    stands for its address. Compiled at the first call and cached.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        hints = get_type_hints(function)
        self._result = hints.pop("return")
        self._arguments = list(hints.values())

    def __call__(self, *arguments: Any) -> Any:
        return self._code(*[a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments])

    @property
    def address(self) -> int:
        """The address of its code, which is compiled or loaded from the cache."""
        arguments = [_NUMBA_TYPES[kind] for kind in self._arguments]
        return c_function(self.function, *arguments, result=_NUMBA_TYPES[self._result])

    @cached_property
    def _code(self) -> Callable[..., Any]:
        if jit_disabled():
            return self.function
        kinds: list[Any] = [_C_TYPES[kind] for kind in self._arguments]
        return ctypes.CFUNCTYPE(_C_TYPES[self._result], *kinds)(self.address)


_NUMBA_TYPES = {int: types.intp, float: types.float64, type(None): types.void}
_C_TYPES = {int: ctypes.c_ssize_t, float: ctypes.c_double, type(None): None}


def entry(function: Callable[..., Any]) -> Entry:
    """Declare a function that Python calls."""
    return Entry(function)


def choose(stub: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """The decorated function gets the types of ``stub``'s arguments and returns the code to use.

    It is how an ``isa`` or ``qt`` picks a body. Uncompiled, the stub itself runs.
    """
    if jit_disabled():
        return lambda chooser: chooser
    return overload(stub, strict=False)  # type: ignore[no-any-return]


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    """Point Numba's cache at a folder for the length of a ``with``."""
    with _lock:
        saved = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            yield
        finally:
            config.CACHE_DIR = saved


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

    def __init__(self, function: Callable[..., None], own: frozenset[str] = frozenset()) -> None:
        self.function = function
        self.own = own
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._compiled: dict[tuple[str, str], Any] = {}

    def level_of(self, level: str) -> str:
        """The level whose code serves ``level``: its base's, where there is none of its own."""
        return level if level in self.own else BASES.get(level, level)

    @property
    def sources(self) -> str:
        """A digest of what the code is compiled from; of another package's kernel, its name."""
        module = module_of(self.function.__code__.co_filename)
        return self.name if module is None else digest_of(module)

    @property
    def uses_tiles(self) -> bool:
        """Whether it is one of amx's own kernels."""
        return "amx" in self.own

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
        if key not in self._compiled:
            try:
                uninterrupted(self._compile, key, compiling is None)
            except _NotCached:
                if compiling is not None:
                    compiling()
                uninterrupted(self._compile, key, True)
        address: int = self._compiled[key].address
        return address

    def _compile(self, key: tuple[str, str], anew: bool) -> None:
        """Load the code or, with ``anew``, compile it. Raises _NotCached."""
        with _lock:
            if key not in self._compiled:
                self._compiled[key] = self._code(*key, anew)

    def _code(self, level: str, quant: str, anew: bool) -> CFunc:
        args = (Tag("isa", level), Tag("quant", quant), types.intp, types.intp, types.intp)
        return _compiled(self.function, args, anew)


def _compiled(
    function: Callable[..., Any], args: tuple[types.Type, ...], anew: bool,
    result: types.Type = types.void,
) -> CFunc:  # fmt: skip
    options = {"nopython": True, "error_model": "numpy", "boundscheck": False}
    folder = cache_folder()
    compiled = _Code(function, (args, result), options)
    compiled.anew = anew
    if folder is not None:
        with _cache_in(folder):
            compiled.enable_caching()
    compiled.compile()
    return compiled


def c_function(
    function: Callable[..., Any], *arguments: types.Type, result: types.Type = types.void
) -> int:
    """The address of its code, for callers of C: ``result f(arguments)``."""

    def compile_once() -> int:
        with _lock:
            if function not in _c_functions:
                _c_functions[function] = _compiled(function, arguments, True, result)
            address: int = _c_functions[function].address
            return address

    return uninterrupted(compile_once)


_c_functions: dict[Callable[..., Any], Any] = {}


class _NotCached(Exception):  # noqa: N818
    """The code would have to be compiled."""


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """A module whose functions are its own, but for the one that others call.

    Functions that are not would be those of modules compiled before in this process. What is kept
    on disk has copies, optimized once more: what is checked here would not be what runs later.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and not function.name.startswith("cfunc."):
                function.linkage = "internal"
        # LLVM 22's level 3 dropped half of a loop's turns (tiles_int8.py, Q5_K).
        saved, config.OPT = config.OPT, min(2, int(config.OPT))
        try:
            super()._optimize_final_module()
        finally:
            config.OPT = saved


class _KernelCompiler(_CFuncCompiler):  # type: ignore[misc]
    def _compile_core(self, args: Any, return_type: Any) -> Any:
        flags = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        context = self.targetdescr.target_context
        library = _Library(context.codegen(), self.py_func.__qualname__)
        library.enable_object_caching()
        return compiler.compile_extra(
            self.targetdescr.typing_context, context, self.py_func, args=args,
            return_type=return_type, flags=self._customize_flags(flags), locals=self.locals,
            library=library, pipeline_class=self.pipeline_class,
        )  # fmt: skip


class _Code(CFunc):
    """A kernel's code, compiled only where that is asked for."""

    anew = True

    def __init__(self, function: Any, sig: Any, options: dict[str, object]) -> None:
        super().__init__(function, sig, {}, options)
        self._compiler = _KernelCompiler(
            function, cpu_target, options, {}, pipeline_class=compiler.Compiler
        )

    def enable_caching(self) -> None:
        self._cache = CodeCache(self._pyfunc)  # type: ignore[attr-defined]

    def _compile_uncached(self) -> Any:
        if not self.anew:
            raise _NotCached
        return super()._compile_uncached()  # type: ignore[misc]


_PYTHON_KERNELS: list[Callable[..., None]] = []


def python_kernel(index: int) -> Callable[..., None]:
    """The uncompiled kernel whose ``address`` was ``index``, under NUMBA_DISABLE_JIT."""
    return _PYTHON_KERNELS[index]


def kernel(function: Callable[..., None]) -> Kernel:
    """Declare a kernel: ``f(isa, qt, record, thread, threads)``."""
    return Kernel(function)


def kernel_with(*levels: str) -> Callable[[Callable[..., None]], Kernel]:
    """As ``kernel``, of code that uses what ``levels`` add to their bases (isa.py)."""
    return lambda function: Kernel(function, frozenset(levels))
