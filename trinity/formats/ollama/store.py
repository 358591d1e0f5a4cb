"""Locate Ollama's store, and the manifest of a name in it.

Sources: Ollama, envconfig/config.go, Models; server/routes.go, getExistingName.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from trinity.cache.kernel_cache import cache_root
from trinity.errors import InputError
from trinity.formats.ollama.name import Name

# home of the user that the Linux service runs as
SERVICE_STORE = "/usr/share/ollama/.ollama/models"
MOST_NAMES = 2000  # limit of listed names


class Store(NamedTuple):
    """A store's folder, which contains ``manifests`` and ``blobs``."""

    root: str

    @property
    def manifests(self) -> str:
        """The folder of manifests."""
        return os.path.join(self.root, "manifests")

    @property
    def blobs(self) -> str:
        """The folder of blobs."""
        return os.path.join(self.root, "blobs")

    def manifest_path(self, name: Name) -> str:
        """The path that the manifest of a valid name should have."""
        return os.path.join(self.manifests, *name.parts)

    def find(self, name: Name) -> str | None:
        """Return the path of a valid name's manifest, ignoring case, or None.

        Raises InputError if a folder may not be searched.
        """
        exact = self.manifest_path(name)
        if _is_there(exact):
            return exact
        path = self.manifests
        for part in name.parts:
            folded = sorted(entry for entry in _entries(path) if entry.lower() == part.lower())
            if not folded:
                return None
            path = os.path.join(path, part if part in folded else folded[0])
        return path if os.path.isfile(path) else None

    def names(self) -> Iterator[str]:
        """The names of models in the store, in their shortest form; at most MOST_NAMES."""
        left = MOST_NAMES
        for parts in _walk(self.manifests, ()):
            name = Name(*parts)
            if name.problem is None:
                yield name.shortest
            left -= 1
            if not left:
                return


def own_store() -> Store:
    """trinity's own store, of the models that requests have created. It need not exist."""
    chosen = os.environ.get("TRINITY_STORE", "").strip()
    if chosen:
        return Store(chosen)
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(
        os.path.expanduser("~"), ".local", "share"
    )
    if data.startswith("~"):  # no home directory is known
        return Store(os.path.join(cache_root(), "models"))
    return Store(os.path.join(data, "trinity", "models"))


def stores() -> tuple[Store, ...]:
    """Return possible stores: trinity's own if it exists, then Ollama's.

    Ollama's are OLLAMA_MODELS alone, or the user's and the service's.
    """
    own = own_store()
    first = (own,) if os.path.isdir(own.manifests) else ()
    chosen = os.environ.get("OLLAMA_MODELS", "").strip().strip("\"'")
    if chosen:
        return (*first, Store(chosen))
    home = os.path.join(os.path.expanduser("~"), ".ollama", "models")
    return (*first, Store(home), Store(SERVICE_STORE))


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise _refused(path, error) from error
    return True


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _refused(folder, error) from error


def _refused(path: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    return InputError(
        f"{path}: cannot be read ({reason}); the folders above it must be open to you: ask their "
        "owner, or copy the store and set OLLAMA_MODELS"
    )


def _walk(folder: str, above: tuple[str, ...]) -> Iterator[tuple[str, str, str, str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            parts = (*above, entry.name)
            if len(parts) == 4:
                yield parts[0], parts[1], parts[2], parts[3]
            elif entry.is_dir():
                yield from _walk(entry.path, parts)
