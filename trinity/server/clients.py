"""Which client a request is of, for shares of what clients compete for."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

from trinity.server.owner import owner

IPV6_NETWORK = 64  # bits of an address that one client may have all addresses of


def client_of(scope: Scope) -> str:
    """The client of a request: the owner of its API key, or the address that it came from.

    The key has been checked. Of an IPv6 address the network counts, which has one owner.
    """
    return owner.get() or network_of(scope)


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
