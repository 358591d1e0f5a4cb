"""Files of an untrusted directory: links that lead out of it are refused."""

from __future__ import annotations

import os

from trinity.errors import InputError

_SHARED = ".huggingface-shared-blobs"  # marks the cache's folder of shared blobs


def directory_file(directory: str, name: str) -> str:
    """Return the path of the file ``name`` of a directory; it need not exist.

    A link may lead to another place in the directory. From a snapshot in huggingface_hub's cache,
    models--OWNER--NAME/snapshots/HASH, it may lead to the blobs of that model, which may be links
    to blobs that all models share (utils/_shared_blobs.py there). Raises InputError for a link that
    leads elsewhere.
    """
    path = os.path.join(directory, name)
    if not os.path.islink(path):
        return path
    root, target = os.path.realpath(directory), os.path.realpath(path)
    allowed = [root]
    if os.path.basename(os.path.dirname(root)) == "snapshots":
        repository = os.path.dirname(os.path.dirname(root))
        allowed.append(os.path.join(repository, "blobs"))
        shared = os.path.join(os.path.dirname(repository), "blobs")
        if os.path.isfile(os.path.join(shared, _SHARED)):
            allowed.append(shared)
    if not any(target.startswith(os.path.join(place, "")) for place in allowed):
        raise InputError(
            f"{path}: a link to {target}, outside of the directory, is not followed; open the "
            "directory that contains the file, or copy the file here"
        )
    return path
