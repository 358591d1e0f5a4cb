"""Anthropic's message batches: requests that run while the server has no others.

A batch is kept as one of OpenAI's is (server/batches/batches.py): its requests are a file of
rows, its results two files. Source: the Message Batches API at docs.anthropic.com.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from trinity.errors import InputError
from trinity.server.batches.batch_rows import LONGEST_ANSWER, LONGEST_ID, lines_of, rows_of
from trinity.server.batches.batch_store import ENDED, BatchObject
from trinity.server.batches.batches import MOST_ROWS, Batches
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.anthropic.errors import ANTHROPIC, anthropic_error
from trinity.server.endpoints.files import batches_of, page_of
from trinity.server.errors import ApiError
from trinity.server.schemas import Body, decoder, encode

PREFIX = "msgbatch_"
PATH = "/v1/messages/batches"
MESSAGES = "/v1/messages"


class BatchedRequest(Body):
    """A request, as it would be sent to /v1/messages, and a name for its result."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
    params: dict[str, Any]


class MessageBatchBody(Body):
    """The requests of a new batch."""

    requests: Annotated[list[BatchedRequest], Meta(min_length=1, max_length=MOST_ROWS)]


class MessageBatchQuery(Body):
    """The query of batches: those created before ``after_id`` or after ``before_id``."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    after_id: str | None = None
    before_id: str | None = None


class RequestCounts(msgspec.Struct):
    """How many requests have each result; ``processing``: none yet."""

    processing: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class MessageBatch(msgspec.Struct):
    """A batch. ``results_url`` is relative to the server's address."""

    id: str
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: RequestCounts
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None
    cancel_initiated_at: datetime | None = None
    archived_at: None = None
    results_url: str | None = None
    type: Literal["message_batch"] = "message_batch"


class MessageBatchList(msgspec.Struct):
    """A page of batches; ``has_more``: more follow."""

    data: list[MessageBatch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class MessageBatchDeleted(msgspec.Struct):
    """A batch that there was."""

    id: str
    type: Literal["message_batch_deleted"] = "message_batch_deleted"


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw


class _Answered(msgspec.Struct):
    """A line of one of the batch's two result files."""

    custom_id: str
    response: _Response


async def create(call: Call[MessageBatchBody]) -> ASGI:
    """Store the requests, and begin to answer them."""
    batches = batches_of(call)
    batch = await call.run(_stored, batches, call.body.requests)
    batches.begin()
    return Json(described_as(batch))


def _stored(batches: Batches, requests: list[BatchedRequest]) -> BatchObject:
    """Check and store requests. Raises: ApiError 400 if two have the same id, or one streams."""
    seen = set[str]()
    for number, request in enumerate(requests):
        where = f"requests[{number}]"
        if request.custom_id in seen:
            raise ApiError(
                400, f"{where}.custom_id is {request.custom_id!r:.80} as in an earlier request"
            )
        if request.params.get("stream"):
            raise ApiError(400, f"{where}.params.stream is true; batches do not stream")
        seen.add(request.custom_id)
    content = b"".join(
        encode({"custom_id": one.custom_id, "url": MESSAGES, "body": one.params}) + b"\n"
        for one in requests
    )
    file = batches.files.add("requests.jsonl", "batch", content)
    try:
        return batches.store.add(file.id, MESSAGES, None, prefix=PREFIX, total=len(requests))
    except ApiError:
        batches.files.delete(file.id)
        raise


async def listed(call: Call[Any]) -> ASGI:
    """The batches."""
    query: MessageBatchQuery = call.query
    batches = batches_of(call)

    def answer() -> Json:
        newest = [batch for batch in batches.store.all() if batch.id.startswith(PREFIX)]
        newest.sort(key=lambda batch: (batch.created_at, batch.id), reverse=True)
        if query.before_id is not None:  # the page that ends before it
            newest.reverse()
        page, first, last, more = page_of(
            newest, query.after_id if query.before_id is None else query.before_id, query.limit
        )
        if query.before_id is not None:
            page, first, last = page[::-1], last, first
        data = [described_as(batches.get(batch.id)) for batch in page]
        return Json(MessageBatchList(data, first, last, more))

    return await call.run(answer)


async def described(call: Call[Any]) -> ASGI:
    """Return a batch."""
    batches, name = _named(call)
    return Json(described_as(await call.run(batches.get, name)))


async def cancel(call: Call[Any]) -> ASGI:
    """Cancel a batch. It keeps the results that it already has."""
    batches, name = _named(call)
    batch = await call.run(batches.cancel, name)
    batches.begin()
    return Json(described_as(batch))


async def delete(call: Call[Any]) -> ASGI:
    """Remove a batch that has ended, and its files."""
    batches, name = _named(call)
    await call.run(batches.delete, name)
    return Json(MessageBatchDeleted(name))


async def results(call: Call[Any]) -> ASGI:
    """Return the results, one per line, in any order."""
    batches, name = _named(call)
    batch = await call.run(batches.get, name)
    if batch.status not in ENDED:
        raise ApiError(400, f"{name} has not ended; wait, or cancel it")
    for file_id in (batch.output_file_id, batch.error_file_id):
        if file_id is not None:
            await call.run(batches.files.get, file_id)
    return StreamingResponse(_results(batches, batch), media_type="application/x-jsonl")


def _results(batches: Batches, batch: BatchObject) -> Iterator[bytes]:
    answered = set[str]()
    decode = decoder(_Answered).decode
    for file_id in (batch.output_file_id, batch.error_file_id):
        if file_id is not None:
            for line in lines_of(batches.files.path(file_id), LONGEST_ANSWER):
                found: _Answered = decode(line)
                answered.add(found.custom_id)
                body = found.response.body
                if found.response.status_code == 200:
                    yield _result(found.custom_id, type="succeeded", message=body)
                else:
                    yield _result(found.custom_id, type="errored", error=body)
    left = _of_unanswered(batch)
    with suppress(InputError):  # the file of requests was removed
        for row in rows_of(batches.files.path(batch.input_file_id)):
            if row.custom_id not in answered:
                yield _result(row.custom_id, **left)


def _of_unanswered(batch: BatchObject) -> dict[str, Any]:
    """The result of each request that had no answer when the batch ended."""
    if batch.status == "cancelled":
        return {"type": "canceled"}
    if batch.status == "expired":
        return {"type": "expired"}
    reason = "; ".join(error.message for error in batch.errors.data) if batch.errors else ""
    return {"type": "errored", "error": anthropic_error(ApiError(500, reason or "no answer"))}


def _result(custom_id: str, **result: Any) -> bytes:
    return encode({"custom_id": custom_id, "result": result}) + b"\n"


def _named(call: Call[Any]) -> tuple[Batches, str]:
    """The store, and the name in the path. Raises: ApiError 404 for one of OpenAI's batches."""
    name = call.request.path_params["batch_id"]
    if not name.startswith(PREFIX):
        raise ApiError(404, f"there is no message batch {name!r:.80}")
    return batches_of(call), name


def described_as(batch: BatchObject) -> MessageBatch:
    """A batch in Anthropic's form."""
    counts = batch.request_counts
    found = RequestCounts(succeeded=counts.completed, errored=counts.failed)
    left = counts.total - counts.completed - counts.failed
    ended = batch.status in ENDED
    if batch.status == "cancelled":
        found.canceled = left
    elif batch.status == "expired":
        found.expired = left
    elif ended:
        found.errored += left
    else:
        found.processing = left
    times = (batch.completed_at, batch.failed_at, batch.expired_at, batch.cancelled_at)
    return MessageBatch(
        batch.id,
        "ended" if ended else "canceling" if batch.status == "cancelling" else "in_progress",
        found,
        _time(batch.created_at),
        _time(batch.expires_at),
        ended_at=next((_time(time) for time in times if time is not None), None),
        cancel_initiated_at=None if batch.cancelling_at is None else _time(batch.cancelling_at),
        results_url=f"{PATH}/{batch.id}/results" if ended else None,
    )


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_ONE = PATH + "/{batch_id}"
ENDPOINTS = (
    Endpoint(
        "POST", PATH, create, "Begins to answer a list of requests.", body=MessageBatchBody,
        answer=MessageBatch, family=ANTHROPIC,
    ),
    Endpoint(
        "GET", PATH, listed, "The batches of messages.", query=MessageBatchQuery,
        answer=MessageBatchList, family=ANTHROPIC,
    ),
    Endpoint(
        "GET", _ONE, described, "How a batch of messages stands.", answer=MessageBatch,
        family=ANTHROPIC,
    ),
    Endpoint(
        "DELETE", _ONE, delete, "Removes a batch of messages.", answer=MessageBatchDeleted,
        family=ANTHROPIC,
    ),
    Endpoint(
        "POST", _ONE + "/cancel", cancel, "Ends a batch of messages.", body=Body, bodiless=True,
        answer=MessageBatch, family=ANTHROPIC,
    ),
    Endpoint(
        "GET", _ONE + "/results", results, "The results of a batch of messages, one a line.",
        media_type="application/x-jsonl", family=ANTHROPIC,
    ),
)  # fmt: skip
