"""Files of a directory that anybody may have made: links that lead out of it are refused."""

from __future__ import annotations

import os

from trinity.errors import InputError

_SHARED = ".huggingface-shared-blobs"  # marks their folder


def directory_file(directory: str, name: str) -> str:
    """The path of the file ``name`` of a directory, which need not exist.

    A link may lead to another place in the directory, and from a snapshot of huggingface_hub's
    cache, models--OWNER--NAME/snapshots/HASH, to the blobs of that model, which may be links to the
    blobs that all models of the cache share (its utils/_shared_blobs.py). Raises InputError for one
    that leads elsewhere.
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
            f"{path}: a link to {target}, outside of the directory; open the directory that has "
            "the file, or put a copy here"
        )
    return path
