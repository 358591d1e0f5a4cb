"""Ollama's text generation: POST /api/chat and /api/generate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, field

from trinity.formats.defaults import ChatTemplate
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.logprobs import chat_logprobs
from trinity.server.endpoints.messages import ToolBody, tools_of
from trinity.server.endpoints.ollama.answer import (
    AnswerWriter,
    ChatAnswer,
    GenerateAnswer,
    Line,
    chat_answer,
    generate_answer,
    only,
    whole,
)
from trinity.server.endpoints.ollama.errors import OLLAMA
from trinity.server.endpoints.ollama.messages import OllamaMessage, messages_of, with_images
from trinity.server.endpoints.ollama.names import seconds_of
from trinity.server.endpoints.ollama.options import Generating
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob, TextJob
from trinity.server.prepared import template_of
from trinity.server.schemas import encode
from trinity.server.service import Answers
from trinity.server.stream import Stream
from trinity.server.thinking import NONE, can_think

if TYPE_CHECKING:
    from trinity.model import Model

NDJSON = "application/x-ndjson"
# Seconds before a stream's last line, in which a client reads the line before it. Ollama's last
# line comes one step after the last text.
APART = 0.01
Token = Annotated[int, Meta(ge=0)]


class OllamaChatRequest(Generating, kw_only=True):
    """The body of POST /api/chat; without messages it only loads the model."""

    messages: list[OllamaMessage] = field(default_factory=list)
    tools: list[ToolBody] | None = None

    @property
    def empty(self) -> bool:
        """Whether the request only loads the model."""
        return not self.messages

    def job(self, ignored: Ignored, model: Model) -> ChatJob:
        """Return the job. Raises: ApiError."""
        messages = messages_of(self.messages)
        return ChatJob(
            messages,
            self.generation(ignored, model.context_length),
            tools_of(self.tools),
            whole=self.stream is False,
            effort=self.effort(),
            effort_param="think",
            cut_after=self.cut_after,
            continues=is_begun(messages) and not can_think(template_of(model)),
        )


class OllamaGenerateRequest(Generating, kw_only=True):
    """The body of POST /api/generate; without a prompt it loads the model.

    ``raw``: the prompt is the model's own input, special tokens and all; no template is used.
    ``template`` replaces the model's, in Go's language or in Jinja. ``suffix``: the text that
    follows the answer. ``context``: that of the answer before.
    """

    prompt: str = ""
    system: str | None = None
    template: str | None = None
    suffix: str | None = None
    context: list[Token] | None = None
    raw: bool | None = None
    images: list[Any] | None = None

    @property
    def empty(self) -> bool:
        """Whether the request only loads the model."""
        return not self.prompt

    def job(self, ignored: Ignored, model: Model) -> ChatJob | TextJob:
        """Return the job. Raises: ApiError."""
        options, at_once = self.generation(ignored, model.context_length), self.stream is False
        if self.images and (self.raw or self.suffix):
            raise ApiError(400, "images need the chat template: omit raw and suffix", "images")
        if self.raw:
            if self.system or self.template or self.context:
                raise ApiError(400, "raw mode does not support template, system, or context")
            options["parse_special"] = True
            return TextJob([self.prompt], options, whole=at_once, cut_after=self.cut_after)
        if self.suffix:
            ids = infill(model, self.shown, self.prompt, self.suffix)
            return TextJob([ids], options, whole=at_once)
        content = with_images(self.prompt, self.images, "images")
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        template = None
        if self.template:
            language: Literal["jinja", "go"] = "jinja" if "{%" in self.template else "go"
            template = ChatTemplate(self.template, language, "template")
        return ChatJob(
            messages,
            options,
            whole=at_once,
            effort=self.effort(),
            effort_param="think",
            template=template,
            before=self.context or (),
            cut_after=self.cut_after,
        )


def is_begun(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the response continues the last message: the assistant's, with text only."""
    *before, last = messages
    return (
        last["role"] == "assistant"
        and bool(last["content"])
        and last.keys() == {"role", "content"}
        and not (before and before[-1]["role"] == "assistant")
    )


def infill(model: Model, name: str, before: str, after: str) -> list[int]:
    """Make the prompt that fills in between two texts. Raises: ApiError, as Ollama does."""
    marks = model.tokenizer.infill_ids
    if marks is None:
        raise ApiError(400, f'"{name}" does not support insert', "suffix")
    prefix, suffix, middle = marks
    head, tail = (model.tokenize(text, add_bos=False) for text in (before, after))
    return [*model.tokenize(""), prefix, *head, suffix, *tail, middle]


async def chat(call: Call[OllamaChatRequest]) -> ASGI:
    """Complete a conversation, streamed as lines or not."""
    return await _answered(call, chat_answer)


async def generate(call: Call[OllamaGenerateRequest]) -> ASGI:
    """Complete a prompt, streamed as lines or not."""
    return await _answered(call, generate_answer)


async def _answered(
    call: Call[OllamaChatRequest] | Call[OllamaGenerateRequest], line: Line
) -> ASGI:
    began, body, service = time.perf_counter(), call.body, call.service
    name = body.served(call.ignored, service.models)
    if body.empty and seconds_of(body.keep_alive) == 0:
        call.keep(name, 0)
        return Json(only(line(body.shown, "", "", []), "unload"))
    with await body.lease(call, name) as model:
        check(call.ignored, body, model, call.request.url.path.rpartition("/")[2])
        if body.empty:
            body.keep(call, name)
            return Json(only(line(body.shown, "", "", []), "load"))
        job = await call.run(body.job, call.ignored, model)
    start = partial(_started, call, name, job)
    continued = isinstance(body, OllamaGenerateRequest) and not body.raw
    write = partial(_writer, body.shown, began, line, continued)
    if body.stream is not False:
        beat = encode(line(body.shown, "", "", [])) + b"\n"
        return Stream(start, partial(lines, write), family=OLLAMA, media_type=NDJSON, beat=beat)
    with await start() as answers:
        return Json(whole([part async for part in answers.by(write(answers))]))


def check(
    ignored: Ignored, body: OllamaChatRequest | OllamaGenerateRequest, model: Model, what: str
) -> None:
    """Raise ApiError, with Ollama's message, for what the model cannot do."""
    if model.encodes:
        raise ApiError(400, f'"{body.shown}" does not support {what}')
    if body.effort() not in (None, NONE) and not can_think(template_of(model)):
        raise ApiError(400, f'"{body.shown}" does not support thinking', "think")
    if body.options is not None:
        body.options.check_context(ignored, model)


async def _started(
    call: Call[OllamaChatRequest] | Call[OllamaGenerateRequest], name: str, job: ChatJob | TextJob
) -> Answers:
    answers = await call.start(name, job)
    call.body.keep(call, name)
    return answers


async def lines(
    write: Callable[[Answers], AnswerWriter], answers: Answers
) -> AsyncGenerator[bytes, None]:
    """Yield the encoded lines of a response.

    The last one is written apart from the line before it: Genkit takes each read for one line.
    """
    async for part in answers.by(write(answers)):
        if part.done:
            yield b""
            await asyncio.sleep(APART)
        yield encode(part) + b"\n"


def _writer(
    model: str, began: float, line: Line, continued: bool, answers: Answers
) -> AnswerWriter:
    context: Sequence[int] | None = answers.prompts[0] if continued else None
    logprobs = partial(chat_logprobs, answers.model)
    return AnswerWriter(model, began, line, logprobs, context, lambda: answers.has_next)


ENDPOINTS = (
    Endpoint(
        "POST", "/api/chat", chat, "Answer a conversation.", body=OllamaChatRequest,
        answer=ChatAnswer, event=ChatAnswer, stream_type=NDJSON, family=OLLAMA, generates=True,
    ),
    Endpoint(
        "POST", "/api/generate", generate, "Answer a prompt.", body=OllamaGenerateRequest,
        answer=GenerateAnswer, event=GenerateAnswer, stream_type=NDJSON, family=OLLAMA,
        generates=True,
    ),
)  # fmt: skip
