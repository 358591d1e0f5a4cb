"""The files of a repository, from the server or, if it does not answer, from the cache."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from trinity.errors import FormatError, InputError, TrinityError
from trinity.hub.cache import COMMIT, CachedRepository
from trinity.hub.name import HubName

SHA256 = re.compile(r"[0-9a-f]{64}")
GIT_HASH = re.compile(r"[0-9a-f]{40}")
_MOST_FILES = 100_000
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file's size and hash, None if not known yet.

    ``digest`` is the SHA-256 of a large file, or Git's hash of any other.
    """

    size: int | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit and its files; ``reason`` says why only the cache could be used."""

    name: HubName
    cache: CachedRepository
    commit: str
    files: Mapping[str, RemoteFile]
    reason: str | None = None

    def path(self, file: str) -> str:
        """The path of a file in the cache. Raises FormatError if it would leave the cache."""
        parts = file.split("/")
        bad = any(part in ("", ".", "..") or not part.isprintable() for part in parts)
        if bad or "\\" in file or os.path.splitdrive(file)[0]:
            raise FormatError(
                f"{self.name.typed}: the repository has a file {file[:120]!r}, whose name leads "
                "out of its folder; nothing is downloaded"
            )
        return os.path.join(self.cache.snapshot(self.commit), *parts)


def library(name: HubName) -> ModuleType:
    """Import huggingface_hub. Raises InputError if it is not installed."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError as error:
        raise InputError(
            f"{name.typed}: models of the Hugging Face hub need the package huggingface_hub "
            f'({error}); install it with: pip install "trinity-llm[hub]"'
        ) from error
    module: ModuleType = huggingface_hub
    return module


def revision_of(name: HubName) -> Revision:
    """Return a revision as listed by the server or, if it does not answer, by the cache.

    Raises InputError if neither has it, FormatError if the server's answer is invalid.
    """
    hub = library(name)
    cache = CachedRepository(os.path.abspath(hub.constants.HF_HUB_CACHE), name.repository)
    try:
        with explaining(name):
            info = hub.HfApi().model_info(
                name.repository,
                revision=name.revision,
                files_metadata=True,
                timeout=hub.constants.HF_HUB_DOWNLOAD_TIMEOUT,
            )
    except _RevisionError:
        raise
    except TrinityError as error:
        commit = cache.commit(name.revision)
        if commit is None:
            raise
        reason = str(error).removeprefix(f"{name.typed}: ").partition(";")[0]
        return _cached(name, cache, commit, reason)
    if not isinstance(info.sha, str) or not COMMIT.fullmatch(info.sha):
        raise _no_hub(name, f"it names {info.sha!r:.60} instead of a commit")
    siblings = info.siblings or []
    if len(siblings) > _MOST_FILES:
        raise _no_hub(name, f"it lists {len(siblings)} files, more than any repository has")
    files = {sibling.rfilename: _remote(name, sibling) for sibling in siblings}
    return Revision(name, cache, info.sha, files)


def _cached(name: HubName, cache: CachedRepository, commit: str, reason: str) -> Revision:
    """The files of a commit in the cache, without broken links."""
    files: dict[str, RemoteFile] = {}
    revision = Revision(name, cache, commit, files, reason)
    for file in cache.files(commit):
        path = revision.path(file)
        if os.path.isfile(path):
            files[file] = RemoteFile(os.path.getsize(path), None)
    return revision


def _remote(name: HubName, sibling: object) -> RemoteFile:
    """Parse the server's description of a file."""
    file = getattr(sibling, "rfilename", None)
    size, lfs = getattr(sibling, "size", None), getattr(sibling, "lfs", None)
    digest, form = getattr(sibling, "blob_id", None), GIT_HASH
    if lfs is not None:
        size, digest, form = lfs.size, lfs.sha256, SHA256
    known = size is None or (isinstance(size, int) and size >= 0)
    if not isinstance(file, str) or not known:
        raise _no_hub(name, f"it lists {file!r:.80} with the size {size!r:.40}")
    if digest is not None and not (isinstance(digest, str) and form.fullmatch(digest)):
        raise _no_hub(name, f"it lists {file!r:.80} with the digest {digest!r:.80}")
    return RemoteFile(size, digest)


class _RevisionError(InputError):
    """The repository has no such revision, so the cache is not used instead."""


def _no_hub(name: HubName, what: str) -> FormatError:
    return FormatError(
        f"{name.typed}: {endpoint()} does not respond like the hub: {what}; check HF_ENDPOINT"
    )


def endpoint() -> str:
    """Return the server's address."""
    import huggingface_hub

    return str(huggingface_hub.constants.ENDPOINT)


@contextmanager
def explaining(name: HubName) -> Iterator[None]:
    """Turn exceptions of the library into a TrinityError that says what to do."""
    try:
        yield
    except TrinityError:
        raise
    except Exception as error:  # the library's errors have no common base class
        raise _explained(name, error) from error


def _explained(name: HubName, error: Exception) -> TrinityError:
    from huggingface_hub import constants, errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    page = f"{constants.ENDPOINT}/{name.repository}"
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    log_in = "log in (`hf auth login`) or set HF_TOKEN"
    kind: type[TrinityError] = InputError
    if isinstance(error, errors.OfflineModeIsEnabled):
        what = "HF_HUB_OFFLINE is set; unset it to download what the cache lacks"
    elif isinstance(error, errors.GatedRepoError) or status == 403:
        what = f"access is restricted; accept the licence at {page}, then {log_in}"
    elif isinstance(error, errors.RevisionNotFoundError):
        kind, what = _RevisionError, f"there is no revision {name.revision!r}; see {page}"
    elif isinstance(error, errors.EntryNotFoundError) and status == 404:
        what = "a file was removed from the server meanwhile; try again"
    elif status == 401 and "Invalid credentials" in response.headers.get("X-Error-Message", ""):
        what = f"the server rejects the token; {log_in}"
    elif isinstance(error, errors.RepositoryNotFoundError) or status in (401, 404):
        what = (
            f"{constants.ENDPOINT} has no such repository, or it is private; check the name, or "
            f"for a private one {log_in}"
        )
    elif status == 429:
        what = "the server limits the number of requests; wait some minutes, or log in"
    elif status is not None:
        what = f"the server answered with status {status}; try again later"
    elif isinstance(error, OSError) and error.errno in _FULL:
        what = (
            f"the disk of {constants.HF_HUB_CACHE} is full; free some space, or set HF_HOME to "
            "another folder; the download then continues"
        )
    elif isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        what = f"{error.filename}: {error.strerror}; set HF_HOME to a writable folder"
    elif isinstance(error, ValueError | TypeError | KeyError | AttributeError | AssertionError):
        return _no_hub(name, _line(error))
    else:
        what = (
            f"{constants.ENDPOINT} cannot be reached ({_line(error)}); check the network, and "
            "HF_ENDPOINT and the proxy settings if they are set"
        )
    return kind(f"{name.typed}: {what}")


def _line(error: Exception) -> str:
    """Return an error's text in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__
