"""The ASGI application: the guarded routes of all endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from trinity.errors import InputError
from trinity.server.batches.batch_rows import URLS
from trinity.server.dispatch import ByMethod, Dispatch, refusal
from trinity.server.endpoint import ASGI, Call, Endpoint
from trinity.server.endpoints import ENDPOINTS
from trinity.server.endpoints.responses import socket
from trinity.server.errors import OPENAI, ApiError, ErrorFamily
from trinity.server.metrics import Metrics
from trinity.server.models import Models
from trinity.server.security import Guard, refused_socket
from trinity.server.service import NO_DEFAULTS, Service
from trinity.server.settings import ServerOptions
from trinity.server.speech import Speech
from trinity.server.transport.connection import has_websockets

if TYPE_CHECKING:
    from trinity.server.created import CreatedModels

log = logging.getLogger("trinity.server")
# Seconds for models to end their current step when the server stops.
CLOSE_SECONDS = 2.0
# Threads that read the files which Starlette sends, 64 KB at a time.
FILE_THREADS = 2


def make_app(
    models: Models,
    settings: ServerOptions | None = None,
    failed: Callable[[BaseException], None] = lambda error: None,
    ready: Callable[[], None] = lambda: None,
    defaults: Mapping[str, Any] = NO_DEFAULTS,
    speech: Speech | None = None,
    created: CreatedModels | None = None,
) -> Starlette:
    """Return the application that serves ``models``.

    With ``preload`` it loads the first model when it starts, then calls ``ready``, or ``failed``
    with the error. Without ``preload`` it calls ``ready`` at once. ``defaults`` are
    GenerationOptions of requests that do not give them. ``speech`` is the model for recordings,
    also loaded at the start; ``created`` are the models that requests may
    create.
    """
    settings = settings or ServerOptions()
    service = Service(settings, models, Metrics(), defaults, speech, created)

    async def load_first() -> None:
        try:
            if settings.preload:
                await models.load_first()
            await models.load_presets()
            if settings.preload and speech is not None:
                await speech.load_now()
        except Exception as error:
            failed(error)
        else:
            ready()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = FILE_THREADS
        at_start = settings.preload or any(model.at_start for model in models.served.values())
        loading = asyncio.create_task(load_first()) if at_start else None
        if loading is None:
            ready()
        answering = None
        if service.batches is not None:
            endpoints = {url: by_path[url]["POST"] for url in URLS}
            answering = asyncio.create_task(service.batches.run(endpoints))
        try:
            yield
        finally:
            if answering is not None:
                answering.cancel()
            if loading is not None:
                loading.cancel()
            for owned in service.owned.values():
                owned.kept.close()
                owned.responses.close()
            service.threads.close()
            service.slot_files.close()
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    if speech is not None:
                        await asyncio.to_thread(speech.close)
                    await models.close()
            except TimeoutError:
                log.warning("a model still computes after %g s; it is abandoned", CLOSE_SECONDS)
            if service.tracing is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await asyncio.to_thread(service.tracing.close)

    def refuse(path: str, error: ApiError) -> ASGI:
        return refusal(family_of(path), error)

    async def wrong_route(request: Request, error: Exception) -> ASGIApp:
        assert isinstance(error, HTTPException)
        path, method = request.url.path, request.method
        if request.headers.get("upgrade", "").lower() == "websocket" and path in socket.PATHS:
            what = no_websocket()
        elif error.status_code == 405:
            headers = error.headers or {}
            allowed = headers.get("Allow") or "other methods"
            told = f"{path:.200} does not allow {method}; it allows {allowed}"
            what = ApiError(405, told, headers=headers)
        else:
            meant = similar.get(_letters(path) or "/")
            advice = f"did you mean {meant}?" if meant else "GET /openapi.json lists all paths"
            what = ApiError(404, f"there is no {path:.200}; {advice}", code="unknown_path")
        return refuse(path, what)

    async def unmatched(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await not_found(scope, receive, send)
            return
        paths = " and ".join(socket.PATHS)
        told = f"there is no WebSocket at {scope['path']:.200}; there are some at {paths}"
        what = ApiError(404, told, code="unknown_path")
        await refused_socket(refuse(scope["path"], what))(scope, receive, send)

    def enabled(endpoint: Endpoint) -> Endpoint:
        if endpoint.path not in settings.disable:
            return endpoint
        return replace(
            endpoint, handle=turned_off, body=None, form=None, query=None, generates=False
        )

    similar = {_letters(endpoint.path): endpoint.path for endpoint in reversed(ENDPOINTS)}
    unknown = set(settings.disable) - {endpoint.path for endpoint in ENDPOINTS}
    if unknown:
        raise InputError(f"there is no path {min(unknown)!r:.80} that could be disabled")
    by_path: dict[str, dict[str, ASGI]] = {}
    for endpoint in ENDPOINTS:
        methods = by_path.setdefault(endpoint.path, {})
        methods[endpoint.method] = Dispatch(enabled(endpoint), service)
    routes: list[BaseRoute] = [
        Route(path, ByMethod(methods), methods=list(methods)) for path, methods in by_path.items()
    ]
    for path in socket.PATHS:
        answer = Dispatch(enabled(replace(socket.ENDPOINT, path=path)), service)
        routes.append(WebSocketRoute(path, socket.ResponsesSocket(answer, service)))
    open_paths = frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.open)
    guard = Middleware(
        Guard, settings=settings, keys=service.keys, refuse=refuse, open_paths=open_paths
    )
    app = Starlette(
        routes=routes,
        middleware=[guard],
        exception_handlers={HTTPException: wrong_route},  # type: ignore[dict-item]
        lifespan=lifespan,
    )
    app.state.endpoints = ENDPOINTS
    app.router.redirect_slashes = False
    not_found, app.router.default = app.router.default, unmatched
    return app


def no_websocket() -> ApiError:
    """The error for a WebSocket request that arrived as a plain HTTP request."""
    if not has_websockets():
        told = "WebSockets need the package wsproto: pip install 'trinity-llm[serve]'"
        return ApiError(501, told, code="no_websockets")
    return ApiError(
        400, "the request for a WebSocket lacks `Connection: Upgrade`; a proxy may have removed it"
    )


def _letters(path: str) -> str:
    """A path without what is easily mistaken: case, hyphens, plurals, and /v1 before it."""
    words = path[:100].lower().replace("-", "").replace("_", "").split("/")
    return "/".join(word.removesuffix("s") for word in words if word not in ("", "v1"))


async def turned_off(call: Call[Any]) -> ASGI:
    """The handler of a disabled path. Without the page, there is nothing at "/"."""
    if call.request.url.path == "/":
        raise ApiError(404, "the chat page is turned off on this server", code="disabled")
    raise ApiError(501, f"{call.request.url.path} is turned off on this server", code="disabled")


def family_of(path: str) -> ErrorFamily:
    """The family of an endpoint's path; for an unknown path, by its prefix."""
    for endpoint in ENDPOINTS:
        if endpoint.path == path:
            return endpoint.family
    for endpoint in ENDPOINTS:
        if endpoint.family.prefixes and path.startswith(endpoint.family.prefixes):
            return endpoint.family
    return OPENAI
