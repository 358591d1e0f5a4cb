"""The cache of huggingface_hub, read without the network; its contents are not trusted.

Layout: ``models--USER--REPO`` with ``refs`` (names of commits), ``snapshots`` (a folder for each
commit, of links) and ``blobs``. Source: huggingface_hub, file_download.py, hf_hub_download.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from trinity.hub.name import MAIN, is_revision, is_word

MOST_REPOSITORIES = 2000
_MOST_FILES = 20_000  # in a snapshot
_MOST_REFERENCES = 1000
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class CachedRepository:
    """A repository's folder in the cache at ``root``; it need not exist."""

    root: str
    repository: str

    @property
    def folder(self) -> str:
        """The repository's folder."""
        return os.path.join(self.root, "models--" + self.repository.replace("/", "--"))

    @property
    def blobs(self) -> str:
        """The folder of files, named by hash."""
        return os.path.join(self.folder, "blobs")

    def snapshot(self, commit: str) -> str:
        """The folder of a commit."""
        return os.path.join(self.folder, "snapshots", commit)

    def reference(self, revision: str) -> str:
        """The file with the commit of a branch or tag when the server was last asked."""
        return os.path.join(self.folder, "refs", *revision.split("/"))

    def commit(self, revision: str) -> str | None:
        """The commit of a revision, or None if there is no snapshot of it."""
        commit = revision if COMMIT.fullmatch(revision) else _read(self.reference(revision))
        return commit if commit and os.path.isdir(self.snapshot(commit)) else None

    def commits(self) -> Iterator[tuple[str, str]]:
        """Each commit with a snapshot, and its name: a branch, a tag or the commit itself."""
        called = {commit: name for name, commit in self._references()}
        with suppress(OSError), os.scandir(os.path.join(self.folder, "snapshots")) as entries:
            snapshots = sorted(entry.name for entry in entries if COMMIT.fullmatch(entry.name))
            yield from ((commit, called.get(commit, commit)) for commit in snapshots)

    def files(self, commit: str) -> list[str]:
        """The names of a snapshot's files, with slashes; broken links are included."""
        return _walk(self.snapshot(commit), _MOST_FILES)

    def _references(self) -> Iterator[tuple[str, str]]:
        """Branches and tags with their commits; the main branch is last."""
        names = _walk(os.path.join(self.folder, "refs"), _MOST_REFERENCES)
        for name in sorted(
            filter(is_revision, names), key=lambda reference: (reference == MAIN, reference)
        ):
            commit = _read(self.reference(name))
            if commit:
                yield name, commit


def cached_repositories(root: str) -> Iterator[CachedRepository]:
    """The model repositories in the cache at ``root``, sorted by name."""
    names: list[str] = []
    with suppress(OSError), os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith("models--"))
    for name in names[:MOST_REPOSITORIES]:
        words = name.split("--")[1:]
        if len(words) == 2 and all(map(is_word, words)):
            yield CachedRepository(root, "/".join(words))


def _walk(top: str, most: int) -> list[str]:
    """The files below a folder, with slashes; links to folders are not followed."""
    files: list[str] = []
    for number, (folder, _, names) in enumerate(os.walk(top)):
        below = os.path.relpath(folder, top).replace(os.sep, "/")
        files += [name if below == "." else f"{below}/{name}" for name in names]
        if max(number, len(files)) > most:
            break
    return files[:most]


def _read(path: str) -> str | None:
    """Read the commit in a reference file."""
    with suppress(OSError, ValueError):
        if os.path.isfile(path):
            with open(path, encoding="ascii") as file:
                commit = file.read(64).strip()
            return commit if COMMIT.fullmatch(commit) else None
    return None
