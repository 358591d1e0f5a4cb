"""A second copy of modules, for the compiler alone.

The modules that the engine imports are light: their guards (``if is_compiled_copy()``) leave out
what only compiled code needs, and decorators return functions as they are. So neither Numba nor
LLVM is imported. To compile a kernel, its module and those that it imports are executed once more,
under names that begin with COPY: there the guards hold and the decorators are Numba's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

NAME, COPY = "trinity_kernels", "trinity_kernels_compiled"


def module(name: str) -> ModuleType:
    """The copy of a module of this package: ``module("trinity_kernels.simd")``."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    return importlib.import_module(_renamed(name))


def counterpart(function: Any) -> FunctionType:
    """A function with the globals of the copy of its module, also one of another package."""
    name = function.__module__
    if name == NAME or name.startswith(NAME + "."):
        copy = module(name)
    else:
        copy = _copy_of_file(function.__code__.co_filename, name)
    found = FunctionType(
        _with_copies(function.__code__), vars(copy), function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    found.__qualname__, found.__module__ = function.__qualname__, copy.__name__
    return found


@cache
def _copy_of_file(path: str, name: str) -> ModuleType:
    """A module of another package, such as a test, executed with copies of this package's."""
    module(NAME)
    copy = ModuleType(f"{COPY}_of_{name}")
    vars(copy)["__file__"] = path
    sys.modules[copy.__name__] = copy
    exec(_with_copies(compile(Path(path).read_bytes(), path, "exec")), vars(copy))
    return copy


def _renamed(name: str) -> str:
    of_package = name == NAME or name.startswith(NAME + ".")
    return COPY + name.removeprefix(NAME) if of_package else name


def _with_copies(code: CodeType) -> CodeType:
    """Code that imports the copies wherever it imported modules of this package."""
    constants = (_with_copies(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_names=tuple(map(_renamed, code.co_names)), co_consts=tuple(constants))


class _Finder:
    """Finds the copies: the same files as of the modules that the engine imports."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != COPY and not name.startswith(COPY + "."):
            return None
        original = importlib.util.find_spec(NAME + name.removeprefix(COPY))
        if original is None:
            return None
        loader: Any = _Loader(original)
        spec = ModuleSpec(name, loader, origin=original.origin)
        spec.submodule_search_locations = original.submodule_search_locations
        spec.has_location = original.has_location
        return spec


class _Loader:  # no importlib.abc.Loader, whose module imports many others
    def __init__(self, original: ModuleSpec) -> None:
        self.original = original

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, copy: ModuleType) -> None:
        loader: Any = self.original.loader
        exec(_with_copies(loader.get_code(self.original.name)), vars(copy))
