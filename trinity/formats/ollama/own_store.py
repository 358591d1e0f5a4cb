"""Writing to trinity's own store: blobs and manifests in Ollama's layout.

A file appears under its name when it is complete. Names and digests are checked before they become
paths, and only files of this store are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from trinity.cache.private_folder import make_private
from trinity.errors import InputError, TrinityError
from trinity.formats.ollama.manifest import IMAGE, PREFIX, Layer, Manifest, read_manifest, sha256_of
from trinity.formats.ollama.name import Name, parse_name
from trinity.formats.ollama.store import MOST_NAMES, Store
from trinity_kernels.whole_file import check_writable, whole_file

_DOCKER = "application/vnd.docker."
UNUSED_SECONDS = 3600.0  # age at which a blob that no model has is removed
_READ_BYTES = 1 << 20


class OwnStore:
    """The store in ``root``, which is made if it does not exist. Raises: InputError."""

    def __init__(self, root: str) -> None:
        self.store = Store(root)
        try:
            for folder in (self.store.manifests, self.store.blobs):
                make_private(folder)
                check_writable(folder)
        except OSError as error:
            raise InputError(
                f"{root}: cannot be written to ({error.strerror}); choose another folder "
                "(TRINITY_STORE)"
            ) from error

    def blob(self, digest: str) -> str:
        """The path of a blob, which need not exist. Raises: InputError for a malformed digest."""
        sha256 = sha256_of(digest)
        if sha256 is None:
            raise InputError(
                f"{digest!r:.100} is not a digest; expected sha256: and 64 hexadecimal digits"
            )
        return os.path.join(self.store.blobs, f"sha256-{sha256}")

    def used(self) -> int:
        """Bytes of all blobs. Raises: OSError."""
        size = 0
        with os.scandir(self.store.blobs) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    size += entry.stat(follow_symlinks=False).st_size
        return size

    @contextmanager
    def writing(self, digest: str) -> Iterator[Callable[[bytes], object]]:
        """A function that takes the content of a blob, part by part.

        The blob is stored at the end of ``with``. Raises: InputError if the content has another
        digest; OSError.
        """
        content = hashlib.sha256()
        with whole_file(self.blob(digest)) as file:

            def write(part: bytes) -> None:
                content.update(part)
                file.write(part)

            yield write
            if content.hexdigest() != sha256_of(digest):
                raise InputError(
                    f"digest mismatch, expected {digest!r:.100}, got 'sha256:{content.hexdigest()}'"
                )

    def add(self, kind: str, content: bytes, name: str = "") -> Layer:
        """Store a layer with this content. Raises: OSError."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if not os.path.exists(self.blob(digest)):
            with self.writing(digest) as write:
                write(content)
        return Layer(kind, digest, len(content), name)

    def add_file(self, kind: str, path: str, name: str = "") -> Layer:
        """Store a layer with the content of a file, which is linked if possible, else copied.

        Raises: OSError.
        """
        real = os.path.realpath(path)
        content, size = hashlib.sha256(), 0
        with open(real, "rb") as file:
            while part := file.read(_READ_BYTES):
                content.update(part)
                size += len(part)
        digest = f"sha256:{content.hexdigest()}"
        target = self.blob(digest)
        if not os.path.exists(target):
            try:
                os.link(real, target)
            except OSError:  # on another disk, or the system allows no link
                with whole_file(target) as copy, open(real, "rb") as file:
                    shutil.copyfileobj(file, copy, _READ_BYTES)
        return Layer(kind, digest, size, name)

    def existing(self, name: Name) -> Name:
        """The name of the store's model whose name differs in case alone, or ``name`` itself."""
        path = self.store.find(name)
        if path is None:
            return name
        return Name(*os.path.relpath(path, self.store.manifests).split(os.sep))

    def manifest(self, name: Name) -> Manifest | None:
        """The manifest of a valid name, or None. Raises: FormatError, InputError."""
        path = self.store.find(name)
        return None if path is None else read_manifest(self.store, path, PREFIX + name.shortest)

    def write(self, name: Name, config: Mapping[str, object], layers: Iterable[Layer]) -> None:
        """Write the manifest of a valid name; blobs that only an older one had are removed.

        Raises: OSError, FormatError, InputError.
        """
        old = self.manifest(name)
        made = self.add("", json.dumps(config).encode())
        path = self.store.manifest_path(name) if old is None else old.path
        make_private(os.path.dirname(path))
        with whole_file(path) as file:
            file.write(json.dumps(_written(made, layers)).encode())
        if old is not None:
            self._drop(old)

    def remove(self, manifest: Manifest) -> None:
        """Remove a manifest of this store, and the blobs that no other one has. Raises: OSError."""
        os.unlink(manifest.path)
        folder = os.path.dirname(manifest.path)
        while folder != self.store.manifests:
            try:
                os.rmdir(folder)
            except OSError:  # it has other models
                break
            folder = os.path.dirname(folder)
        self._drop(manifest)

    def remove_unused(self) -> None:
        """Remove blobs that no manifest has and that are older than an hour."""
        before = time.time() - UNUSED_SECONDS
        used = self._used_blobs()
        with suppress(OSError), os.scandir(self.store.blobs) as entries:
            for entry in entries:
                if used is None or entry.name in used or not entry.name.startswith("sha256-"):
                    continue
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        os.unlink(entry.path)

    def _drop(self, manifest: Manifest) -> None:
        """Remove the blobs of a manifest that is gone, except those that another one has."""
        used = self._used_blobs()
        if used is not None:
            for path in self._blobs_of(manifest):
                if os.path.basename(path) not in used:
                    with suppress(OSError):  # Windows removes no file that a model has open
                        os.unlink(path)

    def _used_blobs(self) -> set[str] | None:
        """The file names of all manifests' blobs; None if they cannot be known."""
        used = set[str]()
        names = list(self.store.names())
        if len(names) >= MOST_NAMES:
            return None
        for name in names:
            try:
                manifest = self.manifest(parse_name(name))
            except TrinityError:
                return None
            if manifest is not None:
                used.update(map(os.path.basename, self._blobs_of(manifest)))
        return used

    def _blobs_of(self, manifest: Manifest) -> list[str]:
        config = () if manifest.config is None else (manifest.config,)
        return [self.blob(layer.digest) for layer in (*manifest.layers, *config)]


def _written(config: Layer, layers: Iterable[Layer]) -> dict[str, object]:
    """The content of a manifest."""
    return {
        "schemaVersion": 2,
        "mediaType": f"{_DOCKER}distribution.manifest.v2+json",
        "config": {
            "mediaType": f"{_DOCKER}container.image.v1+json",
            "digest": config.digest,
            "size": config.size,
        },
        "layers": [
            {
                "mediaType": layer.kind if "/" in layer.kind else IMAGE + layer.kind,
                "digest": layer.digest,
                "size": layer.size,
                **({"name": layer.name} if layer.name else {}),
            }
            for layer in layers
        ],
    }
