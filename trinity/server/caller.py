"""Who sent a request: whose data it reaches, and whose share of the server it uses."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from starlette.types import Scope

IPV6_NETWORK = 64  # bits of an address that one client may have all addresses of
OWNER = "trinity.owner"  # in the scope: the owner whose API key was checked


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the owner of its API key and the client that it counts as."""

    owner: str = ""
    """The name of its API key; "" if the server has fewer than two keys."""
    client: str = ""
    """The name under which it shares threads, the queue and steps with others."""
    body_bytes: int = 0
    """Bytes of the request's body."""


def caller_of(scope: Scope, body_bytes: int = 0) -> Caller:
    """The caller of a request whose key has been checked.

    Its client is the owner, or else the address.
    """
    owner = scope.get(OWNER, "")
    return Caller(owner, owner or network_of(scope), body_bytes)


def network_of(scope: Scope) -> str:
    """The IPv4 address, or the network of the IPv6 address, of the peer; empty if not known."""
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))
