"""Resumable downloads into huggingface_hub's cache.

The library does not resume in another process, does not verify small files, and uses any hash from
the server as a path. So this module writes the files: into ``blobs``, under the library's lock. It
verifies the hash, then renames and links the file as the library does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from trinity.errors import FormatError, InputError, TrinityError
from trinity.hub.client import GIT_HASH, SHA256, Revision, endpoint, explaining, library
from trinity.hub.name import HubName
from trinity_kernels.whole_file import whole_file

Progress = Callable[[int, int, str], None]
UNFINISHED = ".trinity.incomplete"
_ATTEMPTS = 5  # without progress
_PAUSE = 1.0  # seconds between attempts
_CHUNK = 1 << 20


def bring(revision: Revision, files: Iterable[str], progress: Progress) -> None:
    """Download the files of a revision that are not in the cache.

    ``progress`` is called with the bytes so far, the total and the file's name. Raises InputError
    if the server or the disk fails, FormatError if the data differ from what was announced.
    """
    missing = [file for file in files if not os.path.isfile(revision.path(file))]
    if not missing:
        return
    if revision.reason is not None:
        raise InputError(
            f"{revision.name.typed}: {missing[0]} is not in the cache, and {revision.reason}; "
            "connect to the network and try again"
        )
    # The server sends a file above this size only to its own library.
    from huggingface_hub.constants import MAX_HTTP_DOWNLOAD_SIZE

    done = 0
    with explaining(revision.name), _no_bars():
        announced = {file: _announced(revision, file) for file in missing}
        total = sum(size for size, _ in announced.values())
        _check_space(revision, announced.values())
        for file, (size, digest) in announced.items():
            before = done

            def tell(so_far: int, before: int = before, file: str = file) -> None:
                progress(before + so_far, total, file)

            if size <= MAX_HTTP_DOWNLOAD_SIZE:
                _link(_complete(revision, file, size, digest, tell), revision.path(file))
            else:
                _bring_by_library(revision, file)
            done += size
            progress(done, total, file)


def file_size(revision: Revision, file: str) -> int:
    """Return a file's size. Raises InputError if the server does not answer."""
    with explaining(revision.name):
        return _announced(revision, file)[0]


def file_part(revision: Revision, file: str, first: int, end: int) -> bytes:
    """Yield the bytes of a file from ``first`` to ``end``, or fewer if the file or connection ends.

    If the server does not support ranges, the bytes before ``first`` are downloaded too. Raises as
    ``bring``.
    """
    from huggingface_hub.utils import hf_raise_for_status

    hub = library(revision.name)
    url = hub.hf_hub_url(revision.name.repository, file, revision=revision.commit)
    part = bytearray()
    if end <= first:
        return b""
    with explaining(revision.name):
        try:
            with _answer(url, f"bytes={first}-{end - 1}") as response:
                hf_raise_for_status(response)
                skipped = 0 if response.status_code == 206 else first
                for chunk in response.iter_bytes():
                    part += chunk[skipped:]
                    skipped = max(0, skipped - len(chunk))
                    if len(part) >= end - first:
                        break
        except (hub.errors.HfHubHTTPError, OSError):
            raise
        except Exception:  # exceptions of the HTTP client; its classes differ by version
            if not part:
                raise
    return bytes(part[: end - first])


def remember(revision: Revision) -> None:
    """Store the commit of a branch or tag, for use without the server."""
    if revision.reason is not None or revision.name.revision == revision.commit:
        return
    with suppress(OSError):
        if revision.cache.commit(revision.name.revision) != revision.commit:
            path = revision.cache.reference(revision.name.revision)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with whole_file(path, durable=False) as file:
                file.write(revision.commit.encode())


def _announced(revision: Revision, file: str) -> tuple[int, str]:
    """Return a file's size and hash; asks the server if its listing lacks them."""
    remote = revision.files[file]
    if remote.size is not None and remote.digest is not None:
        return remote.size, remote.digest
    hub = library(revision.name)
    url = hub.hf_hub_url(revision.name.repository, file, revision=revision.commit)
    headers = hub.get_hf_file_metadata(url)
    digest, size = headers.etag or "", max(headers.size or 0, 0)
    if not SHA256.fullmatch(digest) and not GIT_HASH.fullmatch(digest):
        raise FormatError(
            f"{revision.name.typed}: {endpoint()} does not respond like the hub: the hash of "
            f"{file} is {digest!r:.80}; check HF_ENDPOINT"
        )
    return size, digest


def _bring_by_library(revision: Revision, file: str) -> None:
    """Download a file that the hub only sends to its own library."""
    hub = library(revision.name)
    hub.hf_hub_download(revision.name.repository, file, revision=revision.commit)
    if not os.path.isfile(revision.path(file)):
        raise InputError(
            f"{revision.name.typed}: {file} changed on the server meanwhile; try again"
        )


def _link(blob: str, path: str) -> None:
    """Link a file into the snapshot, or copy it if the system has no links."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path):
        with suppress(FileNotFoundError):
            os.unlink(path)  # a link to a removed blob
    with suppress(FileExistsError):  # another process was there first
        try:
            os.symlink(os.path.relpath(blob, os.path.dirname(path)), path)
        except (PermissionError, NotImplementedError):
            shutil.copyfile(blob, path)


def _complete(
    revision: Revision, file: str, size: int, digest: str, tell: Callable[[int], None]
) -> str:
    """Download the blob of a file and return its path."""
    from huggingface_hub.utils import WeakFileLock

    blobs, locks = revision.cache.blobs, os.path.join(revision.cache.root, ".locks")
    locks = os.path.join(locks, os.path.basename(revision.cache.folder))
    os.makedirs(blobs, exist_ok=True)
    os.makedirs(locks, exist_ok=True)
    blob = os.path.join(blobs, digest)
    with WeakFileLock(os.path.join(locks, digest + ".lock")):
        if os.path.exists(blob):
            return blob
        unfinished = blob + UNFINISHED
        _fill(revision, file, size, unfinished, tell)
        if not _has_hash(unfinished, digest):
            os.unlink(unfinished)
            raise FormatError(
                f"{revision.name.typed}: {file} has another hash than announced: it was damaged "
                "in transit, or changed on the server; it was removed, download it again"
            )
        os.replace(unfinished, blob)
    return blob


def _fill(revision: Revision, file: str, size: int, path: str, tell: Callable[[int], None]) -> None:
    """Append to the file at ``path`` until it has the announced length."""
    hub = library(revision.name)
    url = hub.hf_hub_url(revision.name.repository, file, revision=revision.commit)
    with open(path, "ab") as out:
        if out.tell() > size:
            out.truncate(0)
        failures = 0
        while (have := out.seek(0, os.SEEK_END)) < size:
            tell(have)
            cut: Exception = EOFError(f"the server sent less than {size} bytes")
            try:
                _append(revision.name, url, out, have, size, tell)
            except (hub.errors.HfHubHTTPError, OSError, TrinityError):
                raise
            # exceptions of the HTTP client; its classes differ by version
            except Exception as error:
                cut = error
            if out.tell() >= size:
                return
            failures = 0 if out.tell() > have else failures + 1
            if failures == _ATTEMPTS:
                raise cut
            time.sleep(_PAUSE)


def _append(
    name: HubName, url: str, out: BinaryIO, have: int, size: int, tell: Callable[[int], None]
) -> None:
    """Write the bytes that the server sends, from byte ``have`` on."""
    from huggingface_hub.utils import hf_raise_for_status

    with _answer(url, f"bytes={have}-" if have else None) as response:
        if have and response.status_code != 206:  # the server ignored the range or rejected it
            out.truncate(0)
            have = 0
        hf_raise_for_status(response)
        for chunk in response.iter_bytes():
            have += len(chunk)
            if have > size:
                raise FormatError(
                    f"{name.typed}: {endpoint()} sends more than the {size} bytes that it "
                    f"announced for {url.rpartition('/')[2]}; try again later"
                )
            out.write(chunk)
            out.flush()  # a signal may end the process at any moment
            tell(have)


@contextmanager
def _answer(url: str, range: str | None) -> Iterator[Any]:
    """Request a file or a range of it, and return the response before its body."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if range is not None:
        headers["Range"] = range
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        yield response


def _has_hash(path: str, digest: str) -> bool:
    made = hashlib.sha256()
    if GIT_HASH.fullmatch(digest):
        made = hashlib.sha1(b"blob %d\0" % os.path.getsize(path))
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            made.update(chunk)
    return made.hexdigest() == digest


def _check_space(revision: Revision, announced: Iterable[tuple[int, str]]) -> None:
    """Raise InputError if the disk has no room for the missing bytes."""
    needed = 0
    for size, digest in announced:
        unfinished = os.path.join(revision.cache.blobs, f"{digest}{UNFINISHED}")
        have = os.path.getsize(unfinished) if os.path.isfile(unfinished) else 0
        needed += max(size - have, 0)
    folder = revision.cache.root
    os.makedirs(folder, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{revision.name.typed}: {needed / 1e9:,.1f} GB are missing, but the disk of {folder} "
            f"has only {free / 1e9:,.1f} GB free; free some space, or set HF_HOME to a folder on "
            "another disk"
        )


@contextmanager
def _no_bars() -> Iterator[None]:
    """Switch off the library's progress bars."""
    from huggingface_hub import utils

    if utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()
