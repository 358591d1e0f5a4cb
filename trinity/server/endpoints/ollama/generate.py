"""Ollama's answers: POST /api/chat and /api/generate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.logprobs import chat_logprobs
from trinity.server.endpoints.messages import Tool, tools_of
from trinity.server.endpoints.ollama.answer import (
    AnswerWriter,
    ChatAnswer,
    GenerateAnswer,
    Line,
    chat_answer,
    generate_answer,
    loaded,
    whole,
)
from trinity.server.endpoints.ollama.errors import OLLAMA
from trinity.server.endpoints.ollama.options import Generating
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob, TextJob
from trinity.server.schemas import Body, encode
from trinity.server.service import Answers, Service
from trinity.server.stream import Stream

NDJSON = "application/x-ndjson"
NoImages = Annotated[list[str], Meta(max_length=0)] | None


class EarlierFunction(Body):
    """A function that an earlier answer called."""

    name: str
    arguments: dict[str, Any]
    index: int | None = None


class EarlierCall(Body):
    """A call of an earlier answer."""

    function: EarlierFunction
    id: str | None = None
    type: Literal["function"] | None = None


class OllamaMessage(Body):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    tool_calls: list[EarlierCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    images: NoImages = None


class OllamaChatRequest(Generating, kw_only=True):
    """The body of POST /api/chat; without messages it loads the model."""

    messages: list[OllamaMessage] = field(default_factory=list)
    tools: list[Tool] | None = None

    def job(self) -> ChatJob:
        """What the service runs. Raises: ApiError."""
        return ChatJob(
            messages_of(self.messages),
            self.generation(),
            tools_of(self.tools),
            whole=self.stream is False,
            effort=self.effort(),
            effort_param="think",
        )


class OllamaGenerateRequest(Generating, kw_only=True):
    """The body of POST /api/generate; without a prompt it loads the model.

    ``raw``: the prompt is the model's own input, special tokens and all; no template is used.
    """

    prompt: str = ""
    system: str | None = None
    raw: bool | None = None
    images: NoImages = None

    def job(self) -> ChatJob | TextJob:
        """What the service runs. Raises: ApiError."""
        options, at_once = self.generation(), self.stream is False
        if self.raw:
            for name in ("system", "think"):
                if getattr(self, name) is not None:
                    raise ApiError(400, f"{name} has no place in a raw prompt", name)
            return TextJob([self.prompt], {**options, "parse_special": True}, whole=at_once)
        messages = [{"role": "user", "content": self.prompt}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": self.system})
        return ChatJob(messages, options, whole=at_once, effort=self.effort(), effort_param="think")


def messages_of(messages: list[OllamaMessage]) -> list[dict[str, Any]]:
    """Messages as chat templates know them.

    Calls without an id are numbered; a result without one belongs to the first call that has none
    yet, of its tool if it names one.
    """
    found: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []  # id and name of those without a result
    count = 0
    for message in messages:
        one: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.thinking is not None:
            one["reasoning_content"] = message.thinking
        if message.tool_calls:
            one["tool_calls"] = calls = []
            for call in message.tool_calls:
                name = call.id or f"call{count:05d}"
                count += 1
                open_calls.append((name, call.function.name))
                arguments = encode(call.function.arguments).decode()
                function = {"name": call.function.name, "arguments": arguments}
                calls.append({"id": name, "type": "function", "function": function})
        if message.role == "tool":
            fitting = [x for x in open_calls if message.tool_name in (None, x[1])]
            if message.tool_call_id is not None:
                fitting = [x for x in open_calls if x[0] == message.tool_call_id]
                one["tool_call_id"] = message.tool_call_id
            elif fitting:
                one["tool_call_id"] = fitting[0][0]
            if fitting:
                open_calls.remove(fitting[0])
            if message.tool_name is not None:
                one["name"] = message.tool_name
        found.append(one)
    return found


async def chat(call: Call[OllamaChatRequest]) -> ASGI:
    """Answer a conversation, in lines or whole."""
    return await _answered(call, chat_answer, empty=not call.body.messages)


async def generate(call: Call[OllamaGenerateRequest]) -> ASGI:
    """Answer a prompt, in lines or whole."""
    return await _answered(call, generate_answer, empty=not call.body.prompt)


async def _answered(
    call: Call[OllamaChatRequest] | Call[OllamaGenerateRequest], line: Line, *, empty: bool
) -> ASGI:
    began, body = time.perf_counter(), call.body
    if empty:
        await asyncio.to_thread(body.generation)
        name = await body.name(call.service)
        (await call.service.models.lease(name)).release()
        return Json(loaded(line(body.model, "", "", [])))
    job = await asyncio.to_thread(body.job)
    started = _started(call.service, body, job)
    if body.stream is not False:
        beat = encode(line(body.model, "", "", [])) + b"\n"
        written = partial(lines, body.model, began, line)
        return Stream(started, written, family=OLLAMA, media_type=NDJSON, beat=beat)
    with await started as answers:
        writer = _writer(answers, body.model, began, line)
        return Json(whole([found async for found in answers.by(writer)]))


async def _started(service: Service, body: Generating, job: ChatJob | TextJob) -> Answers:
    return await service.start(await body.name(service), job)


async def lines(
    model: str, began: float, line: Line, answers: Answers
) -> AsyncGenerator[bytes, None]:
    """The lines of an answer."""
    writer = _writer(answers, model, began, line)
    async for found in answers.by(writer):
        yield encode(found) + b"\n"


def _writer(answers: Answers, model: str, began: float, line: Line) -> AnswerWriter:
    return AnswerWriter(model, began, line, partial(chat_logprobs, answers.model))


ENDPOINTS = (
    Endpoint(
        "POST", "/api/chat", chat, "Answer a conversation.", body=OllamaChatRequest,
        answer=ChatAnswer, event=ChatAnswer, stream_type=NDJSON, family=OLLAMA,
    ),
    Endpoint(
        "POST", "/api/generate", generate, "Answer a prompt.", body=OllamaGenerateRequest,
        answer=GenerateAnswer, event=GenerateAnswer, stream_type=NDJSON, family=OLLAMA,
    ),
)  # fmt: skip
