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
from llvmlite import binding
from numba.core import compiler, config, types
from numba.core.ccallback import _CFuncCompiler  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.datamodel.models import OpaqueModel
from numba.core.registry import cpu_target
from numba.extending import overload, register_model

from trinity_kernels import code_store
from trinity_kernels.code_files import CodeCache, cache_folder, compiler_digest, note_problem
from trinity_kernels.flat_code import FlatCode, UnlinkableError, link
from trinity_kernels.isa import BASES, jit_disabled
from trinity_kernels.loaded_code import load, loadable
from trinity_kernels.processor import target
from trinity_kernels.sources import digest_of_function
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
        self._addresses: dict[tuple[str, str], int] = {}

    def level_of(self, level: str) -> str:
        """The level whose code serves ``level``: its base's, where there is none of its own."""
        return level if level in self.own else BASES.get(level, level)

    @property
    def sources(self) -> str:
        """A digest of the sources of its code; its name if they are unknown."""
        return digest_of_function(self.function) or self.name

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
                args = (Tag("isa", level), Tag("quant", quant), types.intp, types.intp, types.intp)
                self._addresses[key] = _address(self.function, args, anew)


def _address(
    function: Callable[..., Any], args: tuple[Any, ...], anew: bool, result: Any = types.void
) -> int:
    """The address of a function's code for these types: from the store, or compiled with ``anew``.

    Code that calls what loaded_code.py does not provide is kept and loaded by Numba instead.
    Raises: _NotCached without ``anew``.
    """
    folder, key = cache_folder(), _key(function, args, result)
    name = "-".join([function.__name__, *(arg.value for arg in args if isinstance(arg, Tag))])
    flat = None if folder is None or key is None else code_store.find(folder, name, key)
    if flat is not None and loadable(flat):
        return load(flat)
    made = _from_numba(function, args, result, anew)
    if isinstance(made, int):
        return made
    if folder is not None and key is not None:
        try:
            code_store.keep(folder, name, key, made)
        except OSError as error:
            note_problem(folder.parent, error)
    return load(made)


def _key(function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> str | None:
    """All that a function's code depends on; None if that cannot be known."""
    sources = digest_of_function(function)
    if sources is None or function.__closure__:
        return None
    name = f"{function.__module__}.{function.__qualname__}({', '.join(map(str, args))}) {result}"
    machine = cpu_target.target_context.codegen().magic_tuple()
    return " ".join([name, sources, compiler_digest(), *map(str, machine)])


@global_compiler_lock  # type: ignore[untyped-decorator]
def _from_numba(
    function: Callable[..., Any], args: tuple[Any, ...], result: Any, anew: bool
) -> int | FlatCode:
    """Code to be loaded, or the address of what only Numba can load. Raises: _NotCached."""
    folder, cache = cache_folder(), None
    if folder is not None:
        with _cache_in(folder):
            cache = CodeCache(function)
    compiled = cache and cache.load_overload(result(*args), cpu_target.target_context)
    if compiled is None:
        if not anew:
            raise _NotCached
        options = {"nopython": True, "error_model": "numpy", "boundscheck": False}
        made = _KernelCompiler(function, cpu_target, options, {}, pipeline_class=compiler.Compiler)
        compiled = made.compile(args, result)
        flat = _flat_code(compiled)
        if flat is not None and loadable(flat):
            return flat
        compiled.library.load_by_numba()
        if cache:
            cache.save_overload(result(*args), compiled)
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


def _flat_code(compiled: Any) -> FlatCode | None:
    """The machine code, if it can be linked."""
    if compiled.library.has_dynamic_globals:
        return None
    try:
        return link(object_code(compiled.library), compiled.fndesc.llvm_cfunc_wrapper_name)
    except UnlinkableError:
        return None


def object_code(library: Any) -> bytes:
    """The object file of a compiled library."""
    code: bytes = target_machine().emit_object(library._final_module)
    return code


def target_machine() -> Any:
    """LLVM's target machine that writes object files."""
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=int(config.OPT), reloc="pic", codemodel="small"
    )


def c_function(
    function: Callable[..., Any], *arguments: types.Type, result: types.Type = types.void
) -> int:
    """The address of its code, for callers of C: ``result f(arguments)``."""

    def compile_once() -> int:
        with _lock:
            if function not in _c_functions:
                _c_functions[function] = _address(function, arguments, True, result)
            return _c_functions[function]

    return uninterrupted(compile_once)


_c_functions: dict[Callable[..., Any], int] = {}


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

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def load_by_numba(self) -> None:
        """Load the code into Numba's engine."""
        super()._finalize_final_module()


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
