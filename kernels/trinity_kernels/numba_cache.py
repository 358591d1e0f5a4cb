"""Numba's cache of compiled code, for code that only Numba can load.

That is all code on systems other than Linux. Numba's own index of a function's signatures is read,
changed and written back, so two first runs at once could mix up each other's code. Here the file's
name says the signature, the file repeats it, and it appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from trinity_kernels.code_files import cache_folder, note_problem
from trinity_kernels.sources import digest_of, module_of
from trinity_kernels.whole_file import whole_file

_PACKAGE = Path(__file__).parent


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
