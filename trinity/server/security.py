"""Access control: Host, Origin and API key, checked before anything else.

With DNS rebinding, a web page points its own name at this machine: the name is in Host, the page in
Origin, and both must be allowed. An IP address needs no DNS, so it cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trinity.server.caller import OWNER, Keys
from trinity.server.errors import ApiError
from trinity.server.settings import ServerOptions
from trinity.server.transport.loop_turns import CLIENT
from trinity.server.transport.paths import UNUSUAL, use_usual_path

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
# Origins of the pages of programs on this machine (Electron, Tauri, extensions of VS Code), as
# Ollama allows them. No page of the web has one; some browsers give file:// to opened files.
PROGRAMS = ("app://", "file://", "tauri://", "vscode-file://", "vscode-webview://")
METHODS = "GET, POST, DELETE, OPTIONS"
# Request headers that pages may send, in addition to those that they ask for: packages have many
# of their own, such as x-stainless-lang of OpenAI's.
USUAL_HEADERS = (
    "Authorization, Content-Type, X-Api-Key, Anthropic-Version, Anthropic-Beta, X-Conversation-Id, "
    "Last-Event-ID"
)
# Response headers that pages may read.
TOLD = "Retry-After, X-Predicted-First-Token-Ms, X-Request-Id, X-Trinity-Ignored"
# Seconds for which a browser caches the response to a preflight request.
KEPT = "600"
# The id of the request that runs, from its X-Request-Id if it has a usable one.
REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
# The first message of a response or of a WebSocket.
BEGINNINGS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
POLICY_VIOLATION = 1008  # a code of RFC 6455
_USABLE_ID = re.compile(r"[!-~]{1,128}")
ANTHROPICS = "/v1/messages"  # whose clients read the id from the header "request-id"


class Guard:
    """ASGI middleware, which also brings paths into their usual form.

    ``refuse`` makes the answer of an error at a path. ``open_paths`` need no key.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerOptions, keys: Keys,
        refuse: Callable[[str, ApiError], ASGIApp], open_paths: frozenset[str],
    ) -> None:  # fmt: skip
        self._app = app
        self._refuse = refuse
        self._open_paths = open_paths
        self._keys = keys
        self._hosts = {
            host.lower() for host in (*LOOPBACK, *settings.hosts, *settings.allowed_host)
        }
        self._any_host = "*" in settings.allowed_host
        self._any_address = any(host in EVERYWHERE for host in settings.hosts)
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origin}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if UNUSUAL.search(scope["path"]):
            use_usual_path(scope)
        headers = Headers(scope=scope)
        path = scope["path"]
        name = headers.get("x-request-id", "")
        if not _USABLE_ID.fullmatch(name):
            name = f"req_{secrets.token_hex(16)}"
        REQUEST_ID.set(name)
        origin = headers.get("origin")
        app = self._app
        try:
            self._check_host(headers)
            if scope.get("method") == "OPTIONS" and "access-control-request-method" in headers:
                app = _preflight
                # Without permission, the browser of a foreign page sends no request.
                origin = origin if self._is_known(headers, origin) else None
            else:
                self._check_origin(headers, origin)
                if path not in self._open_paths:
                    scope[OWNER] = owner = self._owner_of(headers)
                    if owner:
                        CLIENT.set(owner)  # in the context of the request's task
        except ApiError as error:
            app = self._refuse(path, error)
            if error.status == 403:
                origin = None
            if scope["type"] == "websocket":
                app = refused_socket(app)
        await app(scope, receive, _told(send, path, name, origin))

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host")
        if host is None or self._any_host:
            return
        name = host_name(host)
        if name not in self._hosts and not (self._any_address and is_address(name)):
            raise ApiError(
                403,
                f"the Host {host!r:.200} is not one of this server's; allow it with --allowed-host",
                code="host_not_allowed",
            )

    def _is_known(self, headers: Mapping[str, str], origin: str | None) -> bool:
        if origin is None or "*" in self._origins or origin.lower() in self._origins:
            return True
        if origin.lower().startswith(PROGRAMS):
            return True
        try:
            place = urlsplit(origin)
            name = (place.hostname or "").lower()
        except ValueError:
            return False
        # The page comes from this server (its Host is allowed) or from a server on this machine.
        own = name != "" and place.netloc.lower() == headers.get("host", "").lower()
        return own or (name in LOOPBACK and place.scheme in ("http", "https"))

    def _check_origin(self, headers: Mapping[str, str], origin: str | None) -> None:
        if not self._is_known(headers, origin):
            raise ApiError(
                403,
                f"pages from {origin!r:.200} may not use this server; allow them with "
                "--allowed-origin",
                code="origin_not_allowed",
            )

    def _owner_of(self, headers: Mapping[str, str]) -> str:
        """The owner of a request's key. Raises: ApiError 401 for a missing or unknown key."""
        if not self._keys:
            return ""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")
        owner = self._keys.owner_of(key.strip())
        if owner is None:
            raise ApiError(
                401,
                "the API key is missing or wrong; send it as `Authorization: Bearer KEY` or as "
                "`x-api-key: KEY`",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return owner


def host_name(host: str) -> str:
    """The name or address of a Host header, without the port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _told(send: Send, path: str, name: str, origin: str | None) -> Send:
    """``send`` that adds a request's id, and lets pages of ``origin`` read it without cookies."""

    async def told(message: Message) -> None:
        if message["type"] in BEGINNINGS:
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = name
            if path.startswith(ANTHROPICS):
                headers["Request-Id"] = name
            if origin is not None:
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = TOLD
                headers.add_vary_header("Origin")
        await send(message)

    return told


def refused_socket(answer: ASGIApp) -> ASGIApp:
    """An application that refuses a WebSocket with an HTTP response.

    If the server cannot send one, it closes the WebSocket, which is status 403.
    """

    async def refused(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            await send({**message, "type": f"websocket.{message['type']}"})

        if "websocket.http.response" in scope.get("extensions", {}):
            await answer(scope, receive, sent)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    return refused


async def _preflight(scope: Scope, receive: Receive, send: Send) -> None:
    asked = Headers(scope=scope).get("access-control-request-headers")
    allowed = ", ".join(filter(None, (USUAL_HEADERS, asked)))
    headers = [
        (b"access-control-allow-methods", METHODS.encode()),
        (b"access-control-allow-headers", allowed.encode("latin-1")),
        (b"access-control-max-age", KEPT.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
