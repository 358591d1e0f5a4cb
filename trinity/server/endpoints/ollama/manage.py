"""Ollama's pull and push.

A pull of a served model succeeds; with ``--allow-pull`` other models are downloaded from the hub.
Nothing is uploaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from trinity.server.endpoint import ASGI, Call, Document, Endpoint, Json
from trinity.server.endpoints.ollama.errors import OLLAMA
from trinity.server.endpoints.ollama.generate import NDJSON
from trinity.server.endpoints.ollama.models import ModelTag, tag_of
from trinity.server.endpoints.ollama.names import served_name
from trinity.server.endpoints.ollama.pulls import Progress, pulled
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable
from trinity.server.schemas import Body, encode


class PullRequest(Body):
    """The body of POST /api/pull and /api/push."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = None
    insecure: Ignorable[bool | None] = None


async def pull(call: Call[PullRequest]) -> ASGI:
    """Report a served model as pulled, or download it from the hub. Raises: ApiError."""
    models, body = call.service.models, call.body
    try:
        name = served_name(call.ignored, models, body.model, body.name)
    except ApiError as error:
        if error.status != 404:
            raise
        asked = body.model or body.name or ""
        if models.of_ref is None:
            raise ApiError(
                501, f"model '{asked}' not found: this server downloads no models unless it is "
                "started with --allow-pull", code="not_supported",
            ) from None  # fmt: skip
        return await pulled(models, asked, stream=body.stream is not False)
    if body.stream is False:
        return Json(Progress("success"))
    tag = await call.run(tag_of, models.find(call.ignored, name))
    lines = b"".join(encode(step) + b"\n" for step in steps(tag))
    return Document(lines, f"{NDJSON}; charset=utf-8")


def steps(tag: ModelTag) -> Iterator[Progress]:
    """Yield what Ollama reports when it pulls a model that it already has."""
    digest = f"sha256:{tag.digest}"
    yield Progress("pulling manifest")
    yield Progress(f"pulling {tag.digest[:12]}", digest, tag.size, tag.size)
    yield Progress("verifying sha256 digest")
    yield Progress("writing manifest")
    yield Progress("success")


async def push(call: Call[PullRequest]) -> ASGI:
    """Refuse to upload a model. Raises: ApiError."""
    served_name(call.ignored, call.service.models, call.body.model, call.body.name)
    raise ApiError(400, "this server uploads no models", code="not_supported")


ENDPOINTS = (
    Endpoint("POST", "/api/pull", pull, "Report a served model, or download one.",
             body=PullRequest, answer=Progress, event=Progress, stream_type=NDJSON, family=OLLAMA),
    Endpoint("POST", "/api/push", push, "Refused: nothing is uploaded.", body=PullRequest,
             family=OLLAMA),
)  # fmt: skip
