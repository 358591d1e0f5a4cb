"""Creating, copying and deleting models, with ``--allow-create``: Ollama's endpoints and blobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import field

from trinity.errors import InputError
from trinity.formats.ollama.manifest import sha256_of
from trinity.formats.ollama.name import Name, parse_name
from trinity.server.endpoint import ASGI, Call, Document, Endpoint, Json
from trinity.server.endpoints.ollama.errors import OLLAMA
from trinity.server.endpoints.ollama.generate import NDJSON
from trinity.server.endpoints.ollama.messages import OllamaMessage, messages_of
from trinity.server.endpoints.ollama.names import served_name
from trinity.server.endpoints.ollama.pulls import Progress
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable
from trinity.server.schemas import Body, encode
from trinity.server.stream import Stream

if TYPE_CHECKING:
    from trinity.quantization.mixes import QuantizationMix
    from trinity.server.created import CreatedModels

Upload = AbstractAsyncContextManager[AsyncGenerator[bytes]]
WRITTEN_BYTES = 1 << 20  # of an upload that are written together


class CreateRequest(Body):
    """The body of POST /api/create; ``files`` and ``adapters`` are digests of blobs by name."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = None
    from_: str | None = field(default=None, name="from")
    files: dict[str, str] | None = None
    adapters: dict[str, str] | None = None
    template: str | None = None
    license: str | list[str] | None = None
    system: str | None = None
    parameters: dict[str, Any] | None = None
    messages: list[OllamaMessage] | None = None
    quantize: str | None = None
    requires: Ignorable[str | None] = None
    info: Ignorable[dict[str, Any] | None] = None


class CopyRequest(Body):
    """The body of POST /api/copy."""

    source: str
    destination: str


class DeleteRequest(Body):
    """The body of DELETE /api/delete."""

    model: str | None = None
    name: str | None = None


class CreationSteps:
    """The steps that Ollama reports while it creates a model."""

    predicted = None
    has_next = False

    def __init__(self, digests: list[str], mix: QuantizationMix | None) -> None:
        made = [] if mix is None else [Progress(f"quantizing model to {mix.name}")]
        used = [Progress(f"using existing layer {digest}") for digest in digests]
        self.steps = [*made, *used, Progress("writing manifest"), Progress("success")]

    def close(self) -> None:
        """Do nothing: the model is there."""


async def create(call: Call[CreateRequest]) -> ASGI:
    """Create a model from another one or from blobs."""
    from trinity.server.created import Recipe

    created, body, models = created_of(call), call.body, call.service.models
    name = valid_name(body.model or body.name or "", "model")
    mix = mix_of(body.quantize) if body.quantize else None
    if not body.from_ and body.files is None:
        raise ApiError(400, "neither 'from' or 'files' was specified")
    base = None
    if body.from_:
        base = models.find(call.ignored, served_name(call.ignored, models, body.from_))
    messages_of(body.messages or ())  # raises an error for an unknown role
    license = [body.license] if isinstance(body.license, str) else body.license or []
    recipe = Recipe(
        base,
        body.files,
        body.adapters,
        body.template or "",
        body.system or "",
        [text for text in license if text],
        body.parameters,
        [{"role": one.role, "content": one.content} for one in body.messages or ()],
        mix,
    )
    make = partial(created.create, models, name, recipe, call.caller.owner)
    if body.stream is False:
        await make()
        return Json(Progress("success"))

    async def made() -> CreationSteps:
        return CreationSteps(await make(), mix)

    return Stream(made, lines, family=OLLAMA, media_type=NDJSON, beat=b"\n")


async def lines(made: CreationSteps) -> AsyncGenerator[bytes]:
    """The steps as lines of JSON."""
    yield b"".join(encode(step) + b"\n" for step in made.steps)


async def copy(call: Call[CopyRequest]) -> ASGI:
    """Give a model a second name."""
    created, models = created_of(call), call.service.models
    name = valid_name(call.body.destination, "destination")
    source = models.find(call.ignored, served_name(call.ignored, models, call.body.source))
    await created.copy(models, source, name, call.caller.owner)
    return empty()


async def delete(call: Call[DeleteRequest]) -> ASGI:
    """Remove a model that was created."""
    created, models = created_of(call), call.service.models
    name = served_name(call.ignored, models, call.body.model, call.body.name)
    await created.delete(models, models.find(call.ignored, name), call.caller.owner)
    return empty()


async def blob(call: Call[Any]) -> ASGI:
    """Whether a blob is there."""
    created = call.service.created
    digest = checked_digest(call)
    if created is None or not await call.run(created.has_blob, digest):
        raise ApiError(404, f'blob "{digest}" not found')
    return empty()


async def add_blob(call: Call[Upload]) -> ASGI:
    """Store a file, whose SHA-256 is in the path."""
    created, digest = created_of(call), checked_digest(call)
    if await call.run(created.has_blob, digest):
        return empty()
    writing = created.store.writing(digest)
    with created.growing(await call.run(created.store.used)) as grow:
        try:
            write = await call.run(writing.__enter__)
            try:
                async with call.body as chunks:
                    async for part in together(chunks):
                        grow(len(part))
                        await call.run(write, part)
            except BaseException as error:
                writing.__exit__(type(error), error, error.__traceback__)
                raise
            # Not Call.run: flushing to the disk may take long.
            await asyncio.to_thread(writing.__exit__, None, None, None)
        except OSError as error:
            raise ApiError(507, f"the blob cannot be stored: {error.strerror}") from error
    return empty(201)


async def together(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The chunks, joined to parts that are worth a write."""
    waiting, size = list[bytes](), 0
    async for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= WRITTEN_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def created_of(call: Call[Any]) -> CreatedModels:
    """The models that requests have created. Raises: ApiError 501 if none may be."""
    created = call.service.created
    if created is None:
        raise ApiError(
            501, "this server creates, copies and deletes no models unless it is started with "
            "--allow-create", code="not_supported",
        )  # fmt: skip
    return created


def mix_of(name: str) -> QuantizationMix:
    """The mix of types that ``quantize`` names. Raises: ApiError."""
    from trinity.quantization.mixes import find_mix

    try:
        return find_mix(name)
    except InputError as error:
        raise ApiError(400, f"quantize: {error}", "quantize") from error


def valid_name(asked: str, param: str) -> Name:
    """The name of a model to create. Raises: ApiError."""
    name = parse_name(asked)
    if name.problem is not None:
        raise ApiError(400, f"{asked!r:.200} is not a valid model name: {name.problem}", param)
    return name


def checked_digest(call: Call[Any]) -> str:
    """The digest in the path. Raises: ApiError."""
    digest: str = call.request.path_params["digest"]
    if sha256_of(digest) is None:
        raise ApiError(
            400, f"invalid digest format: {digest!r:.100}; expected sha256: and 64 hexadecimal "
            "digits"
        )  # fmt: skip
    return digest


def empty(status: int = 200) -> Document:
    """A response without a body, as Ollama's."""
    return Document(b"", "text/plain", status)


ENDPOINTS = (
    Endpoint("POST", "/api/create", create, "Create a model.", body=CreateRequest,
             answer=Progress, event=Progress, stream_type=NDJSON, family=OLLAMA),
    Endpoint("POST", "/api/copy", copy, "Give a model a second name.", body=CopyRequest,
             media_type="text/plain", family=OLLAMA),
    Endpoint("DELETE", "/api/delete", delete, "Remove a created model.", body=DeleteRequest,
             media_type="text/plain", family=OLLAMA),
    Endpoint("GET", "/api/blobs/{digest}", blob, "Whether a blob is there.",
             media_type="text/plain", family=OLLAMA),
    Endpoint("POST", "/api/blobs/{digest}", add_blob, "Store a file for a model.", upload=True,
             media_type="text/plain", family=OLLAMA),
)  # fmt: skip
