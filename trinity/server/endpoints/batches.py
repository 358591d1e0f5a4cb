"""OpenAI's batches: files of requests, which run while the server has no other requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trinity.server.batches.batch_store import BatchObject
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.files import batches_of, page_of
from trinity.server.errors import ApiError
from trinity.server.schemas import Body

Key = Annotated[str, Meta(max_length=64)]
Value = Annotated[str, Meta(max_length=512)]


class BatchBody(Body):
    """A file of requests for one endpoint."""

    input_file_id: str
    endpoint: Literal[
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"
    ]
    completion_window: Literal["24h"] = "24h"
    metadata: Annotated[dict[Key, Value], Meta(max_length=16)] | None = None


class BatchQuery(Body):
    """The query of batches: those ``after`` one, the newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None


class BatchList(msgspec.Struct):
    """A page of batches; ``has_more``: more follow."""

    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


async def create(call: Call[BatchBody]) -> ASGI:
    """Create a batch of the requests in an uploaded file, and start it."""
    body, batches = call.body, batches_of(call)
    file = await call.run(batches.files.get, body.input_file_id)
    if file.purpose != "batch":
        raise ApiError(
            400, f"{file.id} has results of a batch; give a file of requests", "input_file_id"
        )
    batch = await call.run(batches.store.add, file.id, body.endpoint, body.metadata)
    batches.begin()
    return Json(batch)


async def listed(call: Call[Any]) -> ASGI:
    """The batches."""
    query: BatchQuery = call.query
    batches = batches_of(call)

    def answer() -> Json:
        newest = [batch for batch in batches.store.all() if batch.id.startswith("batch_")]
        newest.sort(key=lambda batch: (batch.created_at, batch.id), reverse=True)
        page, first, last, more = page_of(newest, query.after, query.limit)
        return Json(BatchList([batches.get(batch.id) for batch in page], first, last, more))

    return await call.run(answer)


async def described(call: Call[Any]) -> ASGI:
    """Return a batch."""
    return Json(await call.run(batches_of(call).get, call.request.path_params["batch_id"]))


async def cancel(call: Call[Any]) -> ASGI:
    """Cancel a batch; completed rows are kept."""
    batches = batches_of(call)
    batch = await call.run(batches.cancel, call.request.path_params["batch_id"])
    batches.begin()
    return Json(batch)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/batches", create, "Begins to answer a file of requests.", body=BatchBody,
        answer=BatchObject,
    ),
    Endpoint("GET", "/v1/batches", listed, "The batches.", query=BatchQuery, answer=BatchList),
    Endpoint(
        "GET", "/v1/batches/{batch_id}", described, "How a batch stands.", answer=BatchObject
    ),
    Endpoint(
        "POST", "/v1/batches/{batch_id}/cancel", cancel, "Ends a batch.", body=Body,
        bodiless=True, answer=BatchObject,
    ),
)  # fmt: skip
