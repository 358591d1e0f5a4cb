"""The decorators of compiled code, and how its addresses are had.

A kernel is one Python function ``f(isa, qt, record, thread, threads)``. ``isa`` and ``qt`` are
values without data whose types choose the code, so one body is compiled per level and per
quantization type. Its machine code comes from the store (code_store.py), or else from the compiler,
which this module imports only then (compiled_copy.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, get_type_hints

import numpy as np

from trinity_kernels import code_files, code_store, compiled_copy
from trinity_kernels.flat_code import FlatCode
from trinity_kernels.isa import BASES, interpreted, is_compiled_copy
from trinity_kernels.loaded_code import load, loadable, supported
from trinity_kernels.processor import target
from trinity_kernels.sources import digest_of_function
from trinity_kernels.uninterrupted import uninterrupted

_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork waits for the compiler, whose locks and tables the child could not use half-way.
    os.register_at_fork(
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_lock.release,
    )


def inline(function: Callable[..., Any]) -> Any:
    """A function called by kernels; LLVM inlines it."""
    if not is_compiled_copy():
        return function
    from trinity_kernels import compiler

    return compiler.inline(function)


def choose(stub: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """The decorated function gets the types of ``stub``'s arguments and returns the code to use.

    It is how an ``isa`` or ``qt`` picks a body. Uncompiled, the stub itself runs.
    """
    if not is_compiled_copy():
        return lambda chooser: chooser
    from trinity_kernels import compiler

    return compiler.choose(stub)


def declare_constant(function: Callable[..., Any]) -> None:
    """Let compiled code call a function of tags: its result for the tags becomes a constant."""
    if is_compiled_copy():
        from trinity_kernels import compiler

        compiler.declare_constant(function)


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is LLVM instructions."""
    if not is_compiled_copy():
        return function
    from trinity_kernels import compiler

    return compiler.intrinsic(function)


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
        arguments = [_TYPE_NAMES[kind] for kind in self._arguments]
        return c_function(self.function, *arguments, result=_TYPE_NAMES[self._result])

    @cached_property
    def _code(self) -> Callable[..., Any]:
        if interpreted():
            return self.function
        kinds: list[Any] = [_C_TYPES[kind] for kind in self._arguments]
        return ctypes.CFUNCTYPE(_C_TYPES[self._result], *kinds)(self.address)


_TYPE_NAMES = {int: "intp", float: "float64", type(None): "void"}
_C_TYPES = {int: ctypes.c_ssize_t, float: ctypes.c_double, type(None): None}


def entry(function: Callable[..., Any]) -> Entry:
    """Declare a function that Python calls."""
    return Entry(function)


class Kernel:
    """One operation's code; ``address(level, quant)`` compiles it, or loads it from the cache."""

    def __init__(
        self,
        function: Callable[..., None],
        own: frozenset[str] = frozenset(),
        own_types: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        self.function = function
        self.own = own
        self.own_types = own_types
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._addresses: dict[tuple[str, str], int] = {}

    def level_of(self, level: str, quant: str) -> str:
        """The level whose code is used at ``level``: its base's if it has no code of its own."""
        own = level in self.own or quant in self.own_types.get(level, ())
        return level if own else BASES.get(level, level)

    @property
    def sources(self) -> str:
        """A digest of the sources of its code and whether the package may have it compiled."""
        packaged = code_files.package_folder(target().architecture) is not None
        return f"{digest_of_function(self.function) or self.name}{'-packaged' if packaged else ''}"

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
        level = self.level_of(level, quant)
        key = (level, quant)
        if interpreted():
            tags = SimpleNamespace(value=level), SimpleNamespace(value=quant)
            _PYTHON_KERNELS.append(partial(self.function, *tags))
            return len(_PYTHON_KERNELS) - 1
        if key not in self._addresses:
            try:
                uninterrupted(self._compile, key, compiling is None)
            except _NotCached:
                if compiling is not None:
                    compiling()
                uninterrupted(self._compile, key, True)
        return self._addresses[key]

    def _compile(self, key: tuple[str, str], anew: bool) -> None:
        """Load the code or, with ``anew``, compile it. Raises _NotCached."""
        with _lock:
            if key not in self._addresses:
                level, quant = key
                name = f"{self.name}-{level}-{quant}"
                types = (f"isa:{level}", f"quant:{quant}", "intp", "intp", "intp")
                self._addresses[key] = _address(self.function, name, types, "void", anew)


def _address(
    function: Callable[..., Any], name: str, arguments: Sequence[str], result: str, anew: bool
) -> int:
    """The address of a function's code for these types: from the store, or compiled with ``anew``.

    Raises: _NotCached without ``anew``.
    """
    packaged = _packaged(function, name, arguments, result)
    if packaged is not None:
        return load(packaged)
    folder, key = code_files.cache_folder(), _key(function, arguments, result)
    flat = None if folder is None or key is None else code_store.find(folder, name, key)
    if flat is not None and loadable(flat):
        return load(flat)
    if supported() and not anew:
        raise _NotCached
    made = compiled_copy.module("trinity_kernels.compiler").code_of(
        function, arguments, result, anew
    )
    if made is None:
        raise _NotCached
    problem = compiled_copy.module("trinity_kernels.code_files").take_cache_problem()
    if problem is not None:
        code_files.note_problem_text(problem)
    if isinstance(made, int):
        return made
    flat = FlatCode(*made)
    if folder is not None and key is not None:
        try:
            code_store.keep(folder, name, key, flat)
        except OSError as error:
            code_files.note_problem(folder.parent, error)
    return load(flat)


def _packaged(
    function: Callable[..., Any], name: str, arguments: Sequence[str], result: str
) -> FlatCode | None:
    """The code that came with this package, compiled for a level's features alone."""
    folder = code_files.package_folder(target().architecture)
    if folder is None or target().chosen:
        return None
    key = package_key(function, arguments, result)
    flat = None if key is None else code_store.find(folder, name, key, code_files.package_owner())
    return flat if flat is not None and loadable(flat) else None


def package_key(function: Callable[..., Any], arguments: Sequence[str], result: str) -> str | None:
    """All that a function's code in the package depends on; None if that cannot be known."""
    sources = digest_of_function(function)
    if sources is None or function.__closure__:
        return None
    name = f"{function.__module__}.{function.__qualname__}({', '.join(arguments)}) {result}"
    return f"{name} {sources} {sys.platform} {target().architecture}"


def _key(function: Callable[..., Any], arguments: Sequence[str], result: str) -> str | None:
    """All that a function's code in the user's cache depends on; None if that cannot be known."""
    key, here = package_key(function, arguments, result), target()
    return key and f"{key} {code_files.compiler_digest()} {here.name} {here.features}"


def c_function(function: Callable[..., Any], *arguments: str, result: str = "void") -> int:
    """The address of its code for callers of C: ``result f(arguments)``, types by name."""

    def compile_once() -> int:
        with _lock:
            if function not in _c_functions:
                name = function.__name__
                _c_functions[function] = _address(function, name, arguments, result, True)
            return _c_functions[function]

    return uninterrupted(compile_once)


_c_functions: dict[Callable[..., Any], int] = {}


class _NotCached(Exception):  # noqa: N818
    """The code would have to be compiled."""


_PYTHON_KERNELS: list[Callable[..., None]] = []


def python_kernel(index: int) -> Callable[..., None]:
    """The uncompiled kernel whose ``address`` was ``index``, under NUMBA_DISABLE_JIT."""
    return _PYTHON_KERNELS[index]


def kernel(function: Callable[..., None]) -> Kernel:
    """Declare a kernel: ``f(isa, qt, record, thread, threads)``."""
    return Kernel(function)


def kernel_with(*levels: str, **types: Collection[str]) -> Callable[[Callable[..., None]], Kernel]:
    """Declare a kernel whose code uses what ``levels`` add to their bases (isa.py).

    ``types``: levels at which only the code of some quantization types does.
    """
    return lambda function: Kernel(function, frozenset(levels), types)
