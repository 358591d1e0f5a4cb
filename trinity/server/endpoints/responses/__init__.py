"""OpenAI's responses: POST /v1/responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.logprobs import chat_logprobs
from trinity.server.endpoints.responses.answer import Response, StreamEvent, new_id
from trinity.server.endpoints.responses.request import ResponsesRequest
from trinity.server.endpoints.responses.writer import ResponseWriter
from trinity.server.errors import api_error
from trinity.server.schemas import encode
from trinity.server.service import Answers
from trinity.server.stream import Stream, event


async def responses(call: Call[ResponsesRequest]) -> ASGI:
    """Answer a conversation, streamed or whole."""
    body = call.body
    started = call.service.start(body.model, await asyncio.to_thread(body.job))
    if body.stream:
        return Stream(started, partial(events, body))
    with await started as answers:
        writer = writer_of(body, answers)
        async for _ in answers.by(writer):
            pass
        return Json(writer.response)


async def events(body: ResponsesRequest, answers: Answers) -> AsyncGenerator[bytes, None]:
    """The events of a stream."""
    writer = writer_of(body, answers)
    for first in writer.begin():
        yield written(first)
    try:
        async for found in answers.by(writer):
            yield written(found)
    except Exception as error:
        yield written(writer.fail(api_error(error).message))


def written(one: StreamEvent) -> bytes:
    """An event under its name."""
    return event(str(one.__struct_config__.tag), encode(one))


def writer_of(body: ResponsesRequest, answers: Answers) -> ResponseWriter:
    """The response before anything of the answer, and what writes it."""
    return ResponseWriter(
        empty_response(body, answers.name, answers.created),
        partial(chat_logprobs, answers.model),
        progress=bool(body.return_progress),
        timed=bool(body.timings_per_token),
    )


def empty_response(body: ResponsesRequest, model: str, created: int) -> Response:
    """A response in progress, with the parameters of its request."""
    text: Any = {"format": {"type": "text"}, "verbosity": "medium"}
    if body.text is not None and body.text.format is not None:
        given = msgspec.to_builtins(body.text.format)
        text["format"] = {name: value for name, value in given.items() if value is not None}
    reasoning = None if body.reasoning is None else body.reasoning
    return Response(
        new_id("resp"), created, model, "in_progress", [],
        instructions=body.instructions, metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        temperature=body.temperature, top_p=body.top_p,
        tool_choice="auto" if body.tool_choice is None else body.tool_choice,
        tools=[
            {
                "type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.parameters, "strict": tool.strict,
            }
            for tool in body.tools or ()
        ],
        max_output_tokens=body.max_output_tokens, max_tool_calls=body.max_tool_calls,
        reasoning={"effort": None if reasoning is None else reasoning.effort, "summary": None},
        text=text, top_logprobs=body.top_logprobs or 0, user=body.user,
        safety_identifier=body.safety_identifier, prompt_cache_key=body.prompt_cache_key,
    )  # fmt: skip


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, responses, "Answer a conversation; nothing is kept of it.",
        body=ResponsesRequest, answer=Response, event=StreamEvent,
    )
    for path in ("/v1/responses", "/responses")
)  # fmt: skip
