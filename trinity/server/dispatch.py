"""Serves the requests of one path, and cancels a request when its client leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from mmap import mmap
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from trinity.errors import ConfigError, FormatError
from trinity.server.caller import OF_BATCH, OWNER, Caller, caller_of
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.errors import ApiError, ErrorFamily, api_error
from trinity.server.ignored import Ignored
from trinity.server.kept import HEADER, name_in
from trinity.server.kept_stream import LAST_EVENT
from trinity.server.schemas import converted, decoded, has_few_values
from trinity.server.security import REQUEST_ID
from trinity.server.service import Service
from trinity.server.stream import DEADLINE, Stream
from trinity.server.threads import SMALL
from trinity.server.transport.bodies import CountedBody, LeftError, read_body, store_body, upload
from trinity.server.transport.compressed import coding_of, decompressed
from trinity.server.transport.connection import CROWDED
from trinity.server.transport.multipart import form_fields

log = logging.getLogger("trinity.server")

# The attribute of a log record with the fields that its JSON object gets in addition.
FIELDS = "trinity_fields"
MOST_PARAMETERS, MOST_QUERY_BYTES = 64, 8192  # of a query


class ByMethod:
    """The endpoints of one path."""

    def __init__(self, methods: dict[str, ASGI]) -> None:
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by its method; HEAD like GET."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._methods[method](scope, receive, send)


class Dispatch:
    """The ASGI application of an endpoint."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self._endpoint = endpoint
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, in a span of its trace if there are traces; GET has none."""
        tracing = self._service.tracing
        if tracing is None or self._endpoint.method == "GET":
            await self._serve(scope, receive, send)
            return
        with tracing.request(scope, self._endpoint.path, send) as watched:
            await self._serve(scope, receive, watched)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and count it in the metrics."""
        began = time.perf_counter()
        status = 499  # nginx's status for a client that disconnects before the response
        ignored = Ignored(self._service.settings.strict)

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if ignored.names:
                    message = named(message, ignored.header)
            await send(message)

        batches = self._service.batches
        live = int(batches is not None and not scope.get(OF_BATCH, False))
        if batches is not None:
            batches.traffic.live += live
        try:
            await self._counted(ignored, scope, receive, watched)
        except LeftError:
            pass
        except asyncio.CancelledError:
            if status == 499:
                stopped = ApiError(503, "the server is stopping")
                await refusal(self._endpoint.family, stopped)(scope, receive, watched)
            raise
        except Exception as error:
            if status != 499:
                raise  # the response has begun, so the connection ends
            await refusal(self._endpoint.family, error)(scope, receive, watched)
            error.__traceback__ = None  # its frames refer to the body and perhaps to the error
        finally:
            if batches is not None:
                batches.traffic.live -= live
            self._service.metrics.answered(self._endpoint.path, status)
            if ignored.names:
                log.info("%s %s ignored: %s", scope["method"], self._endpoint.path, ignored.header)
            if self._service.settings.log_requests:
                self._log(scope, status, time.perf_counter() - began)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        """Log a request. A line in JSON also has the parts of its message as fields."""
        method, path = scope["method"], self._endpoint.path
        fields = {"method": method, "path": path, "status": status, "seconds": round(seconds, 6)}
        client = scope.get("client")
        if client:
            fields["client"] = client[0]
        log.info(
            "%s %s %d %.3f s %s", method, path, status, seconds, REQUEST_ID.get(),
            extra={FIELDS: fields},
        )  # fmt: skip

    async def _counted(self, ignored: Ignored, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request while the bytes of its body count."""
        upload = await self._upload(scope)
        with self._service.bodies.counted() as body, upload as grow:
            await self._read_and_handle(ignored, body, grow, scope, receive, send)

    async def _upload(self, scope: Scope) -> AbstractContextManager[Callable[[int], None] | None]:
        """Count the bytes of an uploaded file against the quota while they arrive."""
        if self._endpoint.limit != "max_file" or self._service.batches is None:
            return nullcontext()
        files = self._service.batches.of(scope.get(OWNER, "")).files
        _, used = await self._service.threads.run(caller_of(scope), files.used)
        return files.upload(used)

    async def _read_and_handle(
        self,
        ignored: Ignored,
        coming: CountedBody,
        grow: Callable[[int], None] | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Read the body, then run the handler until it ends or the client leaves."""
        settings = self._service.settings
        deadline = asyncio.get_running_loop().time() + settings.request_seconds
        scope[DEADLINE] = deadline
        check_connection(scope)
        coding = coding_of(scope)
        most, folder = settings.max_body, None
        if self._endpoint.generates and self._service.models.reads_images:
            most = max(most, settings.max_audio)
        if self._endpoint.form is not None:
            most = getattr(settings, self._endpoint.limit)
            if self._endpoint.limit == "max_file" and self._service.batches is not None:
                folder = self._service.batches.of(scope.get(OWNER, "")).files.folder
        in_memory = folder is None and not scope.get(OF_BATCH, False)
        run = partial(self._service.threads.run, caller_of(scope))
        if self._endpoint.upload:
            most = settings.max_store
        source = receive if coding is None else decompressed(receive, coding, most, run)
        if self._endpoint.upload:
            chunks = upload(scope, source, coming, most)
            call = Call(self._service, caller_of(scope), chunks, Request(scope, receive), ignored)
            async with asyncio.timeout_at(deadline):
                answer = await self._endpoint.handle(call)
            await answer(scope, receive, send)
            return
        try:
            async with (
                asyncio.timeout_at(deadline),
                coming.coming(source, in_memory=in_memory) as received,
            ):
                if folder is not None and grow is not None:
                    body = await store_body(scope, received, most, folder, grow, run)
                else:
                    # The Content-Length of a compressed form is not its length.
                    is_form = self._endpoint.form is not None and coding is None
                    body = await read_body(scope, received, most, run, is_form=is_form)
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time") from None
        caller = caller_of(scope, len(body))
        working = asyncio.ensure_future(self._handle(ignored, body, caller, scope, receive, send))
        del body  # it may be large, and the response may take long
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            leaving.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})

    async def _handle(
        self, ignored: Ignored, body: bytes | mmap, caller: Caller, scope: Scope,
        receive: Receive, send: Send,
    ) -> None:  # fmt: skip
        """Decode the body, call the endpoint's handler, and send its response."""
        content = await read_content(ignored, self._service, caller, self._endpoint, scope, body)
        del body
        endpoint, request = self._endpoint, Request(scope, receive)
        name, last = request.headers.get(HEADER), request.headers.get(LAST_EVENT)
        query = None
        if endpoint.query is not None:
            check_query(scope)
            query = converted(ignored, dict(request.query_params), endpoint.query, "", strict=False)
        call = Call(self._service, caller, content, request, ignored, query)
        if name and last and endpoint.event is not None:
            await call.kept.resume(name_in(name), last, endpoint.path)(scope, receive, send)
            return
        if endpoint.generates:
            most = self._service.settings.max_queue
            self._service.models.check_queue(content.model, caller.client, most)
        async with asyncio.timeout_at(scope[DEADLINE]):
            answer = await endpoint.handle(call)
        if name and isinstance(answer, Stream):
            answer = call.kept.answer(name_in(name), answer, endpoint.path, caller.body_bytes)
        await answer(scope, receive, send)


async def read_content(
    ignored: Ignored, service: Service, caller: Caller, endpoint: Endpoint, scope: Scope,
    body: bytes | mmap,
) -> Any:  # fmt: skip
    """``content_of`` a body, in a thread if the body is large. Raises: ApiError."""
    kind = Headers(scope=scope).get("content-type", "")
    if len(body) <= SMALL or (endpoint.form is None and has_few_values(body)):
        return content_of(ignored, endpoint, body, kind)
    return await service.threads.run(caller, content_of, ignored, endpoint, body, kind)


def named(start: Message, names: str) -> Message:
    """The start of a response, with the names of the request's ignored fields as a header."""
    return {**start, "headers": [*start["headers"], (b"x-trinity-ignored", names.encode())]}


def content_of(ignored: Ignored, endpoint: Endpoint, body: bytes | mmap, kind: str = "") -> Any:
    """The decoded body of a request; ``kind`` is its Content-Type. Raises: ApiError."""
    if endpoint.form is not None:
        named = "filename" in endpoint.form.__struct_fields__
        fields = form_fields(body, kind, with_filename=named)
        given = {key: value for key, value in fields.items() if value != ""}
        return converted(ignored, given, endpoint.form, "", strict=False)
    assert isinstance(body, bytes)
    if endpoint.body is not None:
        return decoded(ignored, b"{}" if endpoint.bodiless and not body else body, endpoint.body)
    return None  # a body has no effect


def refusal(family: ErrorFamily, error: Exception) -> ASGI:
    """The response for an error. An error of the server is also logged."""
    told = api_error(error)
    if told.status == 500 or isinstance(error, FormatError | ConfigError):
        log.error("a request failed", exc_info=error)
    return Json(family.form(told), told.status, told.headers)


def check_connection(scope: Scope) -> None:
    """Raises: ApiError 503 if the connection exceeds the limit, except for GET and HEAD."""
    if scope.get(CROWDED, False) and scope["method"] not in ("GET", "HEAD"):
        raise ApiError(
            503,
            "the server has reached its limit of connections",
            code="too_many_connections",
            headers={"Retry-After": "1"},
        )


def check_query(scope: Scope) -> None:
    """Raises: ApiError 400 for a query that would take long to parse."""
    query: bytes = scope["query_string"]
    if query.count(b"&") >= MOST_PARAMETERS:
        raise ApiError(400, f"the query has more than {MOST_PARAMETERS} parameters")
    if len(query) > MOST_QUERY_BYTES:
        raise ApiError(400, f"the query has more than {MOST_QUERY_BYTES} bytes")


async def _left(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
