"""OpenAI's files: what batches are made of, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.responses import FileResponse

from trinity.server.batches.batch_store import BatchObject
from trinity.server.batches.batches import Batches
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.errors import ApiError
from trinity.server.file_store import FileObject, Purpose
from trinity.server.schemas import Body

T = TypeVar("T", FileObject, BatchObject)


class FileForm(Body):
    """A file of requests, one a line."""

    file: memoryview
    purpose: Literal["batch"]
    filename: str = "file.jsonl"


class FileQuery(Body):
    """The query of files: those ``after`` one, the newest first by default."""

    purpose: Purpose | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class FileList(msgspec.Struct):
    """A page of files; ``has_more``: more follow."""

    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class FileDeleted(msgspec.Struct):
    """A file that there was."""

    id: str
    deleted: bool = True
    object: Literal["file"] = "file"


def batches_of(call: Call[Any]) -> Batches:
    """Return the store of files and batches. Raises: ApiError 501 if there is none."""
    batches = call.service.batches
    if batches is None:
        raise ApiError(
            501,
            "files and batches need a folder; start the server with --state FOLDER",
            code="no_state",
        )
    return batches.of(call.caller.owner)


def page_of(
    items: list[T], after: str | None, limit: int
) -> tuple[list[T], str | None, str | None, bool]:
    """Return ``limit`` items ``after`` one, their first and last id, and whether more follow.

    Raises: ApiError 404 if ``after`` is not one of them.
    """
    if after is not None:
        names = [item.id for item in items]
        if after not in names:
            raise ApiError(404, f"after is {after!r:.80}, an unknown id", "after", "not_found")
        items = items[names.index(after) + 1 :]
    page = items[:limit]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return page, first, last, len(items) > len(page)


async def add(call: Call[FileForm]) -> ASGI:
    """Store a file."""
    body, files = call.body, batches_of(call).files
    return Json(await call.run(files.add, body.filename, body.purpose, body.file))


async def listed(call: Call[Any]) -> ASGI:
    """List the files."""
    query: FileQuery = call.query
    files = batches_of(call).files

    def answer() -> Json:
        shown = [file for file in files.all() if query.purpose in (None, file.purpose)]
        shown.sort(key=lambda file: (file.created_at, file.id), reverse=query.order == "desc")
        return Json(FileList(*page_of(shown, query.after, query.limit)))

    return await call.run(answer)


async def described(call: Call[Any]) -> ASGI:
    """Return a file's description."""
    return Json(await call.run(batches_of(call).files.get, call.request.path_params["file_id"]))


async def content(call: Call[Any]) -> ASGI:
    """Return a file's content."""
    files = batches_of(call).files
    file = await call.run(files.get, call.request.path_params["file_id"])
    path = files.path(file.id)
    if not path.is_file():
        raise ApiError(404, "the file's content is missing", "file_id", "file_not_found")
    return FileResponse(path, media_type="application/octet-stream")


async def delete(call: Call[Any]) -> ASGI:
    """Remove a file."""
    batches, name = batches_of(call), call.request.path_params["file_id"]
    await call.run(batches.delete_file, name)
    return Json(FileDeleted(name))


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/files", add, "Keeps a file of requests.", form=FileForm, limit="max_file",
        answer=FileObject,
    ),
    Endpoint("GET", "/v1/files", listed, "The files.", query=FileQuery, answer=FileList),
    Endpoint("GET", "/v1/files/{file_id}", described, "What a file is.", answer=FileObject),
    Endpoint("DELETE", "/v1/files/{file_id}", delete, "Removes a file.", answer=FileDeleted),
    Endpoint(
        "GET", "/v1/files/{file_id}/content", content, "What is in a file.",
        media_type="application/octet-stream",
    ),
)  # fmt: skip
