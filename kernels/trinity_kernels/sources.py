"""Which source files a kernel is compiled from, and the digest that names its code in the cache.

A kernel depends on its own module and on every module of this package that its module imports,
directly or through others, at any depth of the file. The imports are found in the text, without
importing anything. A change of one file changes the digest of what depends on it, and of nothing
else.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent
_NAME = _PACKAGE.name
# Modules that decide where code is kept or whether it is used, not what it is.
NO_CODE = frozenset(
    f"{_NAME}.{name}"
    for name in (
        "code_files",
        "code_store",
        "compiled_copy",
        "compiling_processes",
        "flat_code",
        "loaded_code",
        "numba_cache",
        "sources",
        "trial",
        "uninterrupted",
        "whole_file",
    )
)
_IMPORTS = re.compile(
    rf"^[ \t]*(?:from ({_NAME}[\w.]*) import (\([^)]*\)|.*)|import ({_NAME}[\w.]*))", re.MULTILINE
)


@cache
def _files() -> dict[str, str]:
    """The file of each module of this package."""
    found: dict[str, str] = {}
    waiting = [(_NAME, str(_PACKAGE))]
    while waiting:
        package, folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == "__init__.py":
                    found[package] = entry.path
                elif entry.name.endswith(".py"):
                    found[f"{package}.{entry.name[:-3]}"] = entry.path
                elif entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir():
                    waiting.append((f"{package}.{entry.name}", entry.path))
    return found


def _import_statements(text: str) -> Iterator[tuple[str, str, str]]:
    """The groups of each import of this package; only lines with its name are matched."""
    at = text.find(_NAME)
    while at >= 0:
        statement = _IMPORTS.match(text, text.rfind("\n", 0, at) + 1)
        if statement is not None:
            yield statement[1] or "", statement[2] or "", statement[3] or ""
        at = text.find(_NAME, at + 1 if statement is None else statement.end())


def _imported(text: str) -> set[str]:
    """The modules of this package that a text imports; of ``from a import b``, a.b or else a."""
    found = set()
    for base, names, module in _import_statements(text):
        if module:
            found.add(module)
        for part in re.sub(r"#.*", "", names).strip("()").split(","):
            name = part.split(" as ")[0].strip()
            if name:
                full = f"{base}.{name}"
                found.add(full if full in _files() else base)
    return found - NO_CODE


@cache
def _read(module: str) -> tuple[bytes, frozenset[str]]:
    """The digest of a module's own text, and what it imports."""
    content = b""
    if module in _files():
        with open(_files()[module], "rb") as file:
            content = file.read()
    return hashlib.sha256(content).digest(), frozenset(_imported(content.decode()))


def modules_of(module: str) -> frozenset[str]:
    """A module of this package and all that it imports, directly or through others."""
    found: set[str] = set()
    waiting = {module}
    while waiting:
        found |= waiting
        waiting = {name for one in waiting for name in _read(one)[1]} - found
    return frozenset(found)


@cache
def digest_of(module: str) -> str:
    """A digest of all sources that a module's code is made from."""
    digest = hashlib.sha256()
    for name in sorted(modules_of(module)):
        digest.update(name.encode() + b"\0" + _read(name)[0])
    return digest.hexdigest()[:16]


def module_of(path: str) -> str | None:
    """The module of this package that a file is; None for files outside of the package."""
    place = Path(os.path.abspath(path))
    if not place.is_relative_to(_PACKAGE):
        return None
    return ".".join((_NAME, *place.relative_to(_PACKAGE).with_suffix("").parts))


@cache
def _digest_of_other_file(path: str) -> str | None:
    """The same for a file outside of the package, whose other imports do not count."""
    try:
        content = Path(path).read_bytes()
        used = [digest_of(module) for module in sorted(_imported(content.decode()))]
    except (OSError, UnicodeDecodeError):
        return None
    return hashlib.sha256(content + " ".join(used).encode()).hexdigest()[:16]


def digest_of_function(function: Callable[..., Any]) -> str | None:
    """A digest of all sources that a function's code is made from; None if they are unknown."""
    path = function.__code__.co_filename
    module = module_of(path)
    return _digest_of_other_file(path) if module is None else digest_of(module)
