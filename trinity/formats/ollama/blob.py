"""Blobs: the files of a store, named by their SHA-256.

Their length is always compared with the manifest, their hash only if they are small: hashing a
model's weights takes as long as reading them.
"""

from __future__ import annotations

import hashlib
import os

from trinity.errors import FormatError, InputError
from trinity.formats.ollama.manifest import Layer, Manifest

MOST_SMALL_BYTES = 4 << 20  # a template, a system text, parameters, messages, a configuration


def blob_path(manifest: Manifest, layer: Layer) -> str:
    """Return the path of a layer's file, which is a regular file in the store of the right length.

    Raises InputError if it is missing or cannot be read, FormatError if it is not that file.
    """
    name = layer.digest.replace(":", "-")
    what = f"the {layer.kind} layer {layer.digest}"
    folder = manifest.store.blobs
    path = next(
        (
            path
            for each in (name, layer.digest)
            if os.path.lexists(path := os.path.join(folder, each))
        ),
        None,
    )  # older stores name the file by the digest itself, with a colon
    if path is None:
        partial = os.path.lexists(os.path.join(folder, name + "-partial"))
        state = "is not completely downloaded" if partial else "is missing"
        raise manifest.error(InputError, f"{what} {state} in {folder}")
    if os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder):
        raise manifest.error(FormatError, f"{what} is a link out of the store")
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise manifest.error(InputError, f"{what} cannot be read ({error.strerror})") from error
    if size != layer.size:
        raise manifest.error(
            FormatError, f"{what} has {size} bytes instead of {layer.size}: it is damaged"
        )
    return path


def small_blob(manifest: Manifest, layer: Layer) -> bytes:
    """Return the content of a small layer after verifying its hash. Raises as ``blob_path``."""
    what = f"the {layer.kind} layer {layer.digest}"
    if layer.size > MOST_SMALL_BYTES:
        raise manifest.error(
            FormatError, f"{what} has {layer.size} bytes; at most {MOST_SMALL_BYTES} are read"
        )
    path = blob_path(manifest, layer)
    if not os.path.isfile(path):
        raise manifest.error(FormatError, f"{what} is not a regular file")
    try:
        with open(path, "rb") as file:
            raw = file.read(MOST_SMALL_BYTES + 1)
    except OSError as error:
        raise manifest.error(InputError, f"{what} cannot be read ({error.strerror})") from error
    digest = hashlib.sha256(raw).hexdigest()
    if "sha256:" + digest != layer.digest:
        raise manifest.error(
            FormatError, f"{what} has another hash, {digest}: it was modified or damaged"
        )
    return raw


def small_text(manifest: Manifest, layer: Layer) -> str:
    """Return the content of a small layer as text. Raises FormatError if it is not UTF-8."""
    try:
        return small_blob(manifest, layer).decode()
    except UnicodeDecodeError as error:
        raise manifest.error(
            FormatError, f"the {layer.kind} layer {layer.digest} is not UTF-8 text"
        ) from error
