"""Responses in the background: generated while no client waits, until complete or cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.responses.answer import Response
from trinity.server.endpoints.responses.stored import ROOTS
from trinity.server.endpoints.responses.writer import ResponseWriter
from trinity.server.errors import ApiError, api_error
from trinity.server.kept_responses import KeptResponses, RunningResponse
from trinity.server.response_files import KeptResponse
from trinity.server.schemas import Body, encode
from trinity.server.service import Answers

log = logging.getLogger("trinity.server")


async def begin(
    kept: KeptResponses,
    writer: ResponseWriter,
    answers: Answers,
    made: Callable[[], Awaitable[KeptResponse]],
    keep: Callable[[], Awaitable[None]],
) -> Json:
    """Generate a response in the background, then ``keep`` it; return it as it is now.

    ``made`` returns it as it is stored.
    """
    response = writer.response
    response.background = True
    try:
        await kept.begin(answers.run, response.id, await made())
    except BaseException:
        answers.close()
        raise

    async def generate() -> None:
        try:
            with answers:
                async for _ in answers.by(writer):
                    pass
        except asyncio.CancelledError:
            response.status = "cancelled"
        except Exception as error:
            writer.fail(api_error(error).message)
        try:
            await keep()
        except Exception as error:
            log.warning("response %s cannot be stored: %s", response.id, error)
        finally:
            kept.running.pop(response.id, None)

    task = asyncio.create_task(generate())
    kept.running[response.id] = RunningResponse(lambda: encode(response), task)
    return Json(response)


async def cancel(call: Call[Any]) -> ASGI:
    """End a response in the background; one that is complete stays as it is."""
    name, kept = call.request.path_params["response"], call.responses
    running = kept.running.get(name)
    if running is not None:
        running.task.cancel()
        await asyncio.wait([running.task])
    body = kept.find(name).body
    if not msgspec.json.decode(body)["background"]:
        raise ApiError(400, f"{name} does not run in the background, so it cannot be cancelled")
    return Json(msgspec.Raw(body))


ENDPOINTS = tuple(
    Endpoint(
        "POST", f"{root}/{{response}}/cancel", cancel, "End a response in the background.",
        body=Body, bodiless=True, answer=Response,
    )
    for root in ROOTS
)  # fmt: skip
