"""Who sends a request: the owner of its API key, and the client whose share of the server it uses.

On a server with several keys, each key owns its files, batches, kept streams, stored responses,
slots and cached prompts. For other keys they do not exist. With one key or none, the owner is "".
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path

from starlette.types import Scope

from trinity.runtime.scheduling.sequence import LAST
from trinity.server.ignored import Ignored

IPV6_NETWORK = 64  # bits of an address that one client may have all addresses of
OWNER = "trinity.owner"  # in the scope: the owner whose API key was checked
# In a request's scope: whether it is a row of a batch.
OF_BATCH = "trinity.of_batch"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the owner of its API key and the client that it counts as."""

    owner: str = ""
    """The name of its API key; "" if the server has fewer than two keys."""
    client: str = ""
    """The name under which it shares threads, the queue and steps with others."""
    body_bytes: int = 0
    """Bytes of the request's body."""
    of_batch: bool = False
    """Whether the request is a row of a batch."""

    def priority(self, ignored: Ignored, asked: int) -> int:
        """The priority of its request: an owner of one of several keys goes before no other.

        A row of a batch goes after all others, whatever it asks for.
        """
        if self.of_batch:
            return LAST
        if not self.owner or asked >= 0:
            return asked
        ignored.add("priority")
        return 0


def caller_of(scope: Scope, body_bytes: int = 0) -> Caller:
    """The caller of a request whose key has been checked.

    Its client is the owner, or else the address.
    """
    owner = scope.get(OWNER, "")
    return Caller(owner, owner or network_of(scope), body_bytes, scope.get(OF_BATCH, False))


def network_of(scope: Scope) -> str:
    """The IPv4 address, or the network of the IPv6 address, of the peer; empty if not known."""
    return _network(str((scope.get("client") or ("",))[0]))


@lru_cache(1024)
def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))


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
        owners = [name for known, name in self._owners if hmac.compare_digest(given, known)]
        return owners[0] if owners else None


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
