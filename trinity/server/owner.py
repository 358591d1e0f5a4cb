"""Owners of what a server keeps: one for each API key.

On a server with several keys, each key owns its files, batches, kept streams, stored responses,
slots and cached prompts. For other keys they do not exist. With one key or none, the owner is "".
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import blake2b, sha256
from pathlib import Path


class Keys:
    """The API keys of a server. ``owners`` has a name for each of several keys, otherwise ""."""

    def __init__(self, keys: Sequence[str]) -> None:
        distinct = tuple(dict.fromkeys(keys))
        several = len(distinct) > 1
        self.owners = tuple(map(name_of, distinct)) if several else ("",)
        hashes = (sha256(key.encode()).digest() for key in distinct)
        self._owners = list(zip(hashes, self.owners, strict=False))

    def __bool__(self) -> bool:
        return bool(self._owners)

    def owner_of(self, key: str) -> str | None:
        """The owner of a key, found in constant time; None for a wrong key."""
        given = sha256(key.encode()).digest()
        found = [name for known, name in self._owners if hmac.compare_digest(given, known)]
        return found[0] if found else None


def name_of(key: str) -> str:
    """The name of a key's owner: 32 hexadecimal digits that do not reveal the key."""
    return blake2b(key.encode(), digest_size=16, person=b"trinity owner").hexdigest()


def folder_of(folder: Path, name: str) -> Path:
    """The owner's part of a folder."""
    return folder / "keys" / name if name else folder


def part_of(most: int, owners: int, least: int) -> int:
    """An owner's equal part of a limit, at least ``least``."""
    return min(most, max(most // owners, least))


def salt_of(owner: str, given: str = "", *, shared: bool = False) -> str:
    """The salt of a request's cached prompts; ``given`` is the one that it asks for.

    ``shared``: all owners have the same.
    """
    name = "" if shared else owner
    return f"{name}/{given}" if name or given else ""
