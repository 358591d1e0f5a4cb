"""Fetches images of http and https URLs, from public addresses only.

A name is resolved once, all of its addresses must be public, and the connection goes to one that
was checked. Each redirect is a URL of its own. Proxies of the environment are not used.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from trinity.errors import InputError

SECONDS = 20.0  # for all images of a request
MOST_REDIRECTS = 3
_LONGEST_URL = 4096
_CHUNK = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[0-9A-Za-z._:-]+")
_URL = re.compile(r"[!-\[\]-~]+")  # ASCII without spaces and backslashes
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
# These contain an IPv4 address: 6to4 and Teredo.
_TUNNELS = ipaddress.IPv6Network("2002::/16"), ipaddress.IPv6Network("2001::/32")
_HEADERS = {
    "Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "trinity",
    "Connection": "close",
}  # fmt: skip


class _Url(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str
    port: int
    target: str  # path and query


def fetched(url: str, where: str, most: int, end: float) -> bytes:
    """Return the content of a URL, ``most`` bytes at most, before ``end`` (``time.monotonic``).

    ``where`` names the image in errors. Raises: InputError if the URL leads to an address that is
    not public, and for anything that cannot be fetched.
    """
    for _ in range(MOST_REDIRECTS + 1):
        place = _parsed(url, where)
        try:
            found = _answer(place, _address(place, where), where, most, end)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = "there was no complete response in time"
            if time.monotonic() < end and not isinstance(error, TimeoutError):
                reason = getattr(error, "strerror", None) or type(error).__name__
            raise InputError(f"{where}: {url!r:.200} cannot be fetched: {reason}") from error
        if isinstance(found, bytes):
            return found
        url = urljoin(url, found)
        if place.scheme == "https" and not url.startswith("https:"):
            raise InputError(f"{where}: an https URL redirects to {url!r:.200}, which is not https")
    raise InputError(f"{where}: the URL has more than {MOST_REDIRECTS} redirects")


def _parsed(url: str, where: str) -> _Url:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if (
        not host
        or len(url) > _LONGEST_URL
        or not _URL.fullmatch(url)
        or not _HOST.fullmatch(host)
        or "@" in parts.netloc
        or parts.scheme not in _PORTS
    ):
        raise InputError(
            f"{where}: {url!r:.200} is not the URL of an image; expected http:// or https://, a "
            "name without a password, and escapes such as %20"
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Url(parts.scheme, host, port or _PORTS[parts.scheme], target)


def _address(place: _Url, where: str) -> str:
    """The address of a host. Raises InputError if one of its addresses is not public."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"{where}: there is no address of {place.host!r:.100}") from error
    addresses = [str(one[4][0]) for one in found]
    if not addresses or not all(map(is_public, addresses)):
        raise InputError(
            f"{where}: {place.host!r:.100} is not fetched, because its address is not public; send "
            "the image itself, as a URL that begins with data:image/png;base64,"
        )
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # with a zone
        return False
    if isinstance(ip, ipaddress.IPv6Address) and (
        ip not in _GLOBAL_6 or any(ip in tunnel for tunnel in _TUNNELS)
    ):
        return False
    return ip.is_global and not ip.is_multicast


def _answer(place: _Url, address: str, where: str, most: int, end: float) -> bytes | str:
    """The content of a URL, or the URL to which it redirects."""
    connection: http.client.HTTPConnection
    left = max(end - time.monotonic(), 0.001)
    raw = socket.create_connection((address, place.port), timeout=left)
    # Each read may wait as long as a timeout of its own, so all of them end together.
    used = raw
    timer = threading.Timer(left, lambda: _end(used))
    timer.daemon = True
    timer.start()
    try:
        if place.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(place.host, place.port, context=context)
            connection.sock = context.wrap_socket(
                raw, server_hostname=place.host, do_handshake_on_connect=False
            )
            used = connection.sock
            connection.sock.do_handshake()
        else:
            connection = http.client.HTTPConnection(place.host, place.port)
            connection.sock = raw
        connection.request("GET", place.target, headers=_HEADERS)
        response = connection.getresponse()
        if response.status in _REDIRECTS:
            return response.headers.get("Location", "")
        if response.status != 200:
            raise InputError(
                f"{where}: {place.host!r:.100} has status {response.status}; check the URL"
            )
        return _content(response, where, most)
    finally:
        timer.cancel()
        _end(used)
        used.close()


def _end(connection: socket.socket) -> None:
    """End a connection that another thread reads; TLS has no part in it."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _content(response: http.client.HTTPResponse, where: str, most: int) -> bytes:
    content, whole = bytearray(), response.length
    while (whole or 0) <= most and len(content) <= most:
        chunk = response.read(_CHUNK)
        if not chunk:
            if whole is not None and len(content) < whole:
                raise http.client.IncompleteRead(b"")
            return bytes(content)
        content += chunk
    raise InputError(f"{where}: the URL has more than {most} bytes, which are too many")
