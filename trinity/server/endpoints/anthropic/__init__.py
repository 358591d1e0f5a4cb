"""Anthropic's Messages API: /v1/messages, /v1/messages/count_tokens, /v1/messages/batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.anthropic import batches
from trinity.server.endpoints.anthropic.answer import (
    MessageAnswer,
    MessageWriter,
    Ping,
    StreamEvent,
)
from trinity.server.endpoints.anthropic.errors import ANTHROPIC
from trinity.server.endpoints.anthropic.request import CountRequest, MessagesRequest
from trinity.server.prepared import prepared
from trinity.server.schemas import encode
from trinity.server.service import Answers
from trinity.server.stream import Stream, event


class MessageTokenCount(msgspec.Struct):
    """The number of tokens of a prompt."""

    input_tokens: int


async def messages(call: Call[MessagesRequest]) -> ASGI:
    """Complete a conversation, streamed or not."""
    body = call.body
    start = partial(call.start, body.model, await call.run(body.whole_job, call.ignored))
    if body.stream:
        return Stream(start, partial(events, body), family=ANTHROPIC, beat=written(Ping()))
    with await start() as answers:
        writer = writer_of(body, answers)
        async for _ in answers.by(writer):
            pass
        return Json(writer.message)


async def events(body: MessagesRequest, answers: Answers) -> AsyncGenerator[bytes, None]:
    """Yield the encoded events of a stream."""
    writer = writer_of(body, answers)
    for first in writer.begin():
        yield written(first)
    async for stream_event in answers.by(writer):
        yield written(stream_event)


def written(stream_event: StreamEvent) -> bytes:
    """Encode an event with its name."""
    return event(str(stream_event.__struct_config__.tag), encode(stream_event))


def writer_of(body: MessagesRequest, answers: Answers) -> MessageWriter:
    """Return the writer of the response."""
    return MessageWriter(
        answers.name, answers.prompt_tokens[0], body.max_tokens, shows_thinking=body.shows_thinking
    )


async def count_tokens(call: Call[CountRequest]) -> ASGI:
    """Count the tokens of a conversation's prompt without running the model."""
    with await call.lease(call.body.model) as model:
        settings = call.service.prompts
        job = await call.run(call.body.job, call.ignored)
        ready = await call.run(prepared, call.ignored, model, job, settings, fitting=False)
        return Json(MessageTokenCount(len(ready.prompts[0])))


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/messages", messages, "Answer a conversation.",
        body=MessagesRequest, answer=MessageAnswer, event=StreamEvent, family=ANTHROPIC,
        generates=True,
    ),
    Endpoint(
        "POST", "/v1/messages/count_tokens", count_tokens, "Count the tokens of a conversation.",
        body=CountRequest, answer=MessageTokenCount, family=ANTHROPIC,
    ),
    *batches.ENDPOINTS,
)  # fmt: skip
