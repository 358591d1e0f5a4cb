"""Stored responses: GET and DELETE /v1/responses/{id}, and GET of their input items."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.responses.answer import Response
from trinity.server.errors import ApiError

ROOTS = ("/v1/responses", "/responses")


class RetrieveQuery(msgspec.Struct):
    """The query of a stored response, which cannot be streamed."""

    stream: bool | None = None


class ItemsQuery(msgspec.Struct):
    """The query of input items; the newest come first unless ``order`` is "asc"."""

    order: Literal["asc", "desc"] = "desc"
    limit: int = 100
    after: str | None = None


class DeletedResponse(msgspec.Struct):
    """The confirmation that a response is deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class InputItems(msgspec.Struct):
    """A page of the input items of a response."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


async def retrieve(call: Call[Any]) -> ASGI:
    """Return a stored response."""
    name, kept = call.request.path_params["response"], call.responses
    running = kept.running.get(name)
    body = kept.find(name).body if running is None else running.body()
    if call.query.stream:
        raise ApiError(400, "stream: stored responses are not streamed", "stream")
    return Json(msgspec.Raw(body))


async def delete(call: Call[Any]) -> ASGI:
    """Delete a stored response."""
    name = call.request.path_params["response"]
    await call.responses.delete(call.run, name)
    return Json(DeletedResponse(name))


async def input_items(call: Call[Any]) -> ASGI:
    """List the input items of a stored response."""
    query, kept = call.query, call.responses.find(call.request.path_params["response"])
    items = [listed_item(item) for item in kept.input]
    if query.order == "desc":
        items.reverse()
    names = [item["id"] for item in items]
    if query.after is not None:
        if query.after not in names:
            raise ApiError(400, f"after: there is no item {query.after!r:.100}", "after")
        items = items[names.index(query.after) + 1 :]
    listed = items[: max(1, min(query.limit, 100))]
    return Json(
        InputItems(
            listed,
            listed[0]["id"] if listed else None,
            listed[-1]["id"] if listed else None,
            len(listed) < len(items),
        )
    )


def listed_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as OpenAI lists it, with a message's content as parts."""
    made = {"type": "message", **item}
    if made["type"] == "message" and isinstance(made.get("content"), str):
        kind = "output_text" if made.get("role") == "assistant" else "input_text"
        made["content"] = [{"type": kind, "text": made["content"]}]
        made.setdefault("status", "completed")
    return made


ENDPOINTS = tuple(
    endpoint
    for root in ROOTS
    for endpoint in (
        Endpoint(
            "GET", f"{root}/{{response}}", retrieve, "A stored response.",
            answer=Response, query=RetrieveQuery,
        ),
        Endpoint(
            "DELETE", f"{root}/{{response}}", delete, "Forget a stored response.",
            answer=DeletedResponse,
        ),
        Endpoint(
            "GET", f"{root}/{{response}}/input_items", input_items,
            "The items of a stored response's input.", answer=InputItems, query=ItemsQuery,
        ),
    )
)  # fmt: skip
