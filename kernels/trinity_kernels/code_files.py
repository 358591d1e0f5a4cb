"""Compiled code on disk: the folder, a file for each signature, and what keeps it from being used.

Numba's own index of a function's signatures is read, changed and written back, so that of two first
runs at once one could point at the other's code. Here the file's name says the signature, the file
repeats it, and it appears whole or not at all. A kill leaves at most a temporary file, which the
next process removes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from trinity_kernels.sources import digest_of, module_of
from trinity_kernels.whole_file import check_writable, remove_abandoned, whole_file

_PACKAGE = Path(__file__).parent
# What keeps compiled code from being kept; the second is whether it was told.
_problem: tuple[str, bool] | None = None


@cache
def compiler_digest() -> str:
    """A digest of the versions of all that compiles."""
    digest = hashlib.sha256()
    for part in (numba.__version__, llvmlite.__version__, sys.version):
        digest.update(part.encode())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept: ``TRINITY_CACHE_DIR``, else the user's cache directory.

    The folder's name is a digest of the compiler's versions; the files' names have digests of the
    sources (sources.py). None if no folder can be written: every process then compiles its
    kernels, and ``take_cache_problem`` says why.
    """
    chosen = os.environ.get("TRINITY_CACHE_DIR")
    candidates = [Path(chosen)] if chosen else []
    if not chosen:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = str(Path.home() / "Library" / "Caches")
        else:
            base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        candidates = [Path(base) / "trinity" / "kernels", _PACKAGE / "__pycache__"]
    first_error: tuple[Path, OSError] | None = None
    for candidate in candidates:
        folder = candidate / compiler_digest()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o755, exist_ok=True)  # code_store.py refuses what others can write
            check_writable(str(folder))
        except OSError as error:
            first_error = first_error or (candidate, error)
            continue
        with suppress(OSError):
            for place in (folder, *folder.iterdir()):
                remove_abandoned(str(place))
        return folder
    assert first_error is not None
    note_problem(*first_error)
    return None


def take_cache_problem() -> str | None:
    """Why compiled kernels are not kept and what to do; None where they are, and once it was told.

    It is for the user: later runs compile anew.
    """
    global _problem
    if _problem is None or _problem[1]:
        return None
    _problem = (_problem[0], True)
    return _problem[0]


def note_problem(folder: Path, error: OSError) -> None:
    """Remember why code cannot be kept, for ``take_cache_problem``."""
    global _problem
    if _problem is None:
        text = (
            f"compiled kernels cannot be kept in {folder} ({error.strerror or error}), so every "
            "run compiles them anew; make room there, or set TRINITY_CACHE_DIR to a folder that "
            "can be written"
        )
        _problem = (text, False)


class CodeCache(FunctionCache):  # type: ignore[misc]
    """A function's compiled code by signature; damage and full disks are no reason to stop."""

    class _impl_class(CompileResultCacheImpl):  # type: ignore[misc] # noqa: N801
        class _Locator(UserProvidedCacheLocator):  # type: ignore[misc]
            @classmethod
            def get_suitable_cache_subpath(cls, py_file: str) -> str:
                # The files' names say the sources: every installation of them shares the code.
                folder = Path(os.path.abspath(py_file)).parent
                if not folder.is_relative_to(_PACKAGE):
                    return str(super().get_suitable_cache_subpath(py_file))
                return "_".join(folder.relative_to(_PACKAGE.parent).parts)

            def get_source_stamp(self) -> Any:
                module = module_of(self._py_file)
                return super().get_source_stamp() if module is None else digest_of(module)

            def ensure_cache_path(self) -> None:  # without a trial file for each function
                with suppress(OSError):  # then it is saving that fails
                    os.makedirs(self.get_cache_path(), exist_ok=True)

        _locator_classes = (_Locator,)

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _CodeFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, or None."""
        try:
            # FunctionCache refreshes the compiler's registries first, a tenth of a second: what is
            # compiled needs none of them, only the runtime's symbols.
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        except Exception:  # whatever unpickling a damaged file may raise
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature where that is possible."""
        try:
            self._save_overload(sig, data)
        except OSError as error:
            folder = cache_folder()
            note_problem(Path(self._cache_path) if folder is None else folder.parent, error)


class _CodeFiles:
    """A function's files, one for each signature: a checksum, the stamp, the key, the code."""

    def __init__(self, folder: str, base: str, stamp: Any) -> None:
        self.folder = folder
        self.base = base
        self.stamp = stamp

    def path(self, key: Any) -> str:
        # A digest of sources is part of the name, so versions of a package do not replace each
        # other's code. A time of change is not: an edited file replaces its old code.
        named = (self.stamp, key) if isinstance(self.stamp, str) else key
        digest = hashlib.sha256(repr(named).encode()).hexdigest()
        return os.path.join(self.folder, f"{self.base}.{digest[:24]}.nbc")

    def load(self, key: Any) -> Any:
        try:
            content = Path(self.path(key)).read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        stamp, saved_key, data = pickle.loads(content[32:])
        return data if (stamp, saved_key) == (self.stamp, key) else None

    def save(self, key: Any, data: Any) -> None:
        content = dumps((self.stamp, key, data))
        with whole_file(self.path(key), durable=False) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def flush(self) -> None:
        """Forget everything; a file that does not fit is never read, so there is nothing to do."""
