"""Downloads of models from the hub by POST /api/pull."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec import UNSET, UnsetType

from trinity.errors import InputError, TrinityError
from trinity.hub.name import PREFIX, HubName, parse_name
from trinity.server.endpoint import ASGI, Json
from trinity.server.endpoints.ollama.errors import OLLAMA
from trinity.server.endpoints.ollama.generate import NDJSON
from trinity.server.endpoints.ollama.names import LATEST
from trinity.server.errors import ApiError
from trinity.server.models import Models
from trinity.server.schemas import encode
from trinity.server.stream import Stream

log = logging.getLogger("trinity.server")

# Hosts of the hub, as Ollama writes names of its models.
HOSTS = ("hf.co/", "huggingface.co/")
WRITTEN = 1 << 20  # bytes after which the progress is sent again


class Progress(msgspec.Struct):
    """The progress of a pull; ``total`` and ``completed`` are bytes."""

    status: str
    digest: str | UnsetType = UNSET
    total: int | UnsetType = UNSET
    completed: int | UnsetType = UNSET


class AbandonedError(TrinityError):
    """Nobody waits for the download any more. What has arrived is kept for the next one."""


class Pull:
    """The download of a model, which is served under the name that was asked for."""

    predicted = None
    has_next = False

    def __init__(self, models: Models, asked: str) -> None:
        self._models, self._asked = models, asked.removesuffix(LATEST)
        self._name = hub_name(self._asked)
        self._steps = asyncio.Queue[Progress | None]()
        self._loop = asyncio.get_running_loop()
        self._left = False
        self._told = -WRITTEN

    def close(self) -> None:
        """End it at the next bytes that arrive."""
        self._left = True

    async def steps(self) -> AsyncGenerator[Progress]:
        """Yield what Ollama reports. Raises: ApiError."""
        yield Progress("pulling manifest")
        fetching = asyncio.ensure_future(self._fetched())
        fetching.add_done_callback(lambda task: task.exception())
        while (step := await self._steps.get()) is not None:
            yield step
        ref = await fetching
        yield Progress("verifying sha256 digest")
        yield Progress("writing manifest")
        assert self._models.of_ref is not None
        self._models.add(self._models.of_ref(self._asked, ref))
        yield Progress("success")

    async def _fetched(self) -> str:
        """Download, and return the path of the model; one download at once."""
        from trinity.hub.model import fetch

        try:
            async with self._models.pulling:
                # Not Call.run: a download of hours must not hold one of its few threads.
                found = await asyncio.to_thread(fetch, self._name, self._notice, self._progress)
            return found.path
        except TrinityError as error:
            # The message may name folders of the server, so only the log has it.
            log.error("%s", error)
            raise ApiError(
                500, f"model '{self._asked}' cannot be downloaded; the server's log says why"
            ) from error
        finally:
            self._steps.put_nowait(None)

    def _notice(self, line: str) -> None:
        log.info("%s", line)

    def _progress(self, done: int, total: int, file: str) -> None:
        if self._left:
            raise AbandonedError("the client left before the download was complete")
        if done < total and done - self._told < WRITTEN:
            return
        self._told = done
        step = Progress(f"pulling {file}", UNSET, total, done)
        self._loop.call_soon_threadsafe(self._steps.put_nowait, step)


async def pulled(models: Models, asked: str, *, stream: bool) -> ASGI:
    """The response to a pull from the hub. Raises: ApiError."""
    download = Pull(models, asked)
    if stream:
        return Stream(lambda: started(download), lines, family=OLLAMA, media_type=NDJSON,
                      beat=b"\n")  # fmt: skip
    try:
        async with aclosing(download.steps()) as steps:
            async for _ in steps:
                pass
    finally:
        download.close()
    return Json(Progress("success"))


async def started(download: Pull) -> Pull:
    """The download, which begins when its steps are read."""
    return download


async def lines(download: Pull) -> AsyncGenerator[bytes]:
    """The steps as lines of JSON."""
    async with aclosing(download.steps()) as steps:
        async for step in steps:
            yield encode(step) + b"\n"


def hub_name(asked: str) -> HubName:
    """The name on the hub. Raises: ApiError for a name of Ollama's registry."""
    for host in HOSTS:
        asked = asked.removeprefix(host)
    try:
        return parse_name(asked.removeprefix(PREFIX))
    except InputError:
        raise ApiError(
            400, f"model '{asked:.200}' is not on the Hugging Face hub: write hf.co/USER/REPO, "
            "hf.co/USER/REPO:QUANT or hf.co/USER/REPO:FILE", "model",
        ) from None  # fmt: skip
