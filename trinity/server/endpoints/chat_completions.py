"""OpenAI's chat completions: POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trinity.conversation.names import random_name
from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.llama_answer import LlamaAnswer, prompt_text, whole_answer
from trinity.server.endpoints.llama_timings import (
    LlamaTimings,
    PromptProgress,
    progress_of,
    timings_of,
    timings_of_one,
)
from trinity.server.endpoints.logprobs import ChatLogprobs, chat_logprobs
from trinity.server.endpoints.messages import (
    Effort,
    Message,
    ResponseFormat,
    TextForm,
    Tool,
    ToolChoice,
    continued,
    messages_of,
    tools_of,
)
from trinity.server.endpoints.sampling import Sampling
from trinity.server.endpoints.usage import FINGERPRINT, Usage, usage_of
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob, End, Piece
from trinity.server.schemas import encode
from trinity.server.service import Answers
from trinity.server.stream import DONE, Stream, data
from trinity.server.structured import format_options, llama_options

FinishReason = Literal["stop", "length", "tool_calls"]


class ChatRequest(Sampling, kw_only=True):
    """The body of POST /v1/chat/completions.

    ``json_schema``, ``grammar``, ``verbose`` and ``reasoning_format`` are llama.cpp's;
    ``add_generation_prompt`` and ``continue_final_message`` are vLLM's, too.
    """

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[Literal["text"]] | None = None
    store: Literal[False] | None = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    reasoning_format: Literal["auto", "deepseek"] | None = None
    verbose: bool | None = None

    def job(self, *, whole: bool) -> ChatJob:
        """What the service runs. Raises: ApiError where parameters contradict each other."""
        options = self.options() | format_options(self.response_format)
        if self.response_format is None or isinstance(self.response_format, TextForm):
            options |= llama_options(self.json_schema, self.grammar)
        elif self.json_schema is not None or self.grammar:
            raise ApiError(400, "response_format and grammar are both given", "response_format")
        if self.max_completion_tokens is not None:
            if options.get("max_tokens", self.max_completion_tokens) != self.max_completion_tokens:
                raise ApiError(
                    400, "max_tokens and max_completion_tokens differ; give one of them",
                    "max_tokens",
                )  # fmt: skip
            options["max_tokens"] = self.max_completion_tokens
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream: true", "stream_options")
        choice = self.tool_choice
        continues = continued(
            self.messages, self.add_generation_prompt, self.continue_final_message
        )
        return ChatJob(
            messages_of(self.messages, continues=continues),
            options,
            tools_of(self.tools),
            choice.name if isinstance(choice, ToolChoice) else choice or "auto",
            self.parallel_tool_calls,
            self.n or 1,
            self.chat_template_kwargs or {},
            whole,
            effort=self.reasoning_effort,
            add_generation_prompt=self.add_generation_prompt is not False or continues,
            continues=continues,
        )


class FunctionDelta(msgspec.Struct):
    """A function's name, and a piece of the JSON text of its arguments."""

    arguments: str
    name: str | UnsetType = UNSET


class CallDelta(msgspec.Struct):
    """The beginning of a call, or more of its arguments."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(msgspec.Struct):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    """What a chunk adds to one answer; the last one has the hash of all its tokens."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_hash: str | UnsetType = UNSET


class ChatChunk(msgspec.Struct):
    """An event of a streamed answer; the last one before [DONE] may have the usage alone."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
    verbose: LlamaAnswer | UnsetType = msgspec.field(default=UNSET, name="__verbose")


class FunctionAnswer(msgspec.Struct):
    """The function that is called, and the JSON text of its arguments."""

    name: str
    arguments: str


class CallAnswer(msgspec.Struct):
    """A call in an answer."""

    id: str
    function: FunctionAnswer
    type: Literal["function"] = "function"


class AnswerMessage(msgspec.Struct):
    """The message that answers."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallAnswer] | UnsetType = UNSET


class Choice(msgspec.Struct):
    """One answer, and the hash of its tokens."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    token_hash: str


class ChatCompletion(msgspec.Struct):
    """The answers to a conversation."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET
    verbose: LlamaAnswer | UnsetType = msgspec.field(default=UNSET, name="__verbose")


@dataclass(slots=True)
class Gathered:
    """The parts of one answer, put together."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, CallAnswer] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """Put a part to what there is."""
        if isinstance(part, Text):
            self.text.append(part.text)
        elif isinstance(part, Reasoning):
            self.reasoning.append(part.text)
        elif isinstance(part, CallStart):
            self.calls[part.index] = CallAnswer(part.id, FunctionAnswer(part.name, ""))
        else:
            self.calls[part.index].function.arguments += part.text

    def message(self) -> AnswerMessage:
        """The answer's message."""
        text = "".join(self.text)
        return AnswerMessage(
            text if text or not self.calls else None,
            reasoning_content="".join(self.reasoning) if self.reasoning else UNSET,
            tool_calls=list(self.calls.values()) if self.calls else UNSET,
        )


async def chat_completions(call: Call[ChatRequest]) -> ASGI:
    """Answer a conversation, streamed or whole."""
    body = call.body
    # Schemas take their time.
    job = await asyncio.to_thread(body.job, whole=not body.stream)
    slot = await body.slot_options(call.service)
    job = replace(job, options={**job.options, **slot})
    verbose = body.verbose
    if verbose is None:
        verbose = call.service.settings.verbose_answers
    started = call.service.start(body.model, job)
    if body.stream:
        return Stream(started, partial(chunks, body=body, verbose=verbose))
    with await started as answers:
        return Json(await whole(answers, body, verbose=verbose))


async def whole(answers: Answers, body: ChatRequest, *, verbose: bool) -> ChatCompletion:
    """All answers, put together."""
    n = body.n or 1
    gathered = [Gathered() for _ in range(n)]
    tokens: list[ChatLogprobs | None] = [
        ChatLogprobs([]) if body.logprobs else None for _ in range(n)
    ]
    first: list[int] = []
    ends: dict[int, End] = {}
    async for event in answers:
        if isinstance(event, End):
            ends[event.index] = event
            continue
        for part in event.parts:
            gathered[event.index].add(part)
        found = tokens[event.index]
        if found is not None:
            found.content += chat_logprobs(answers.model, event.logprobs)
        if event.index == 0:
            first += event.token_ids
    choices = [
        Choice(i, gathered[i].message(), tokens[i], finish_reason(ends[i]), ends[i].token_hash)
        for i in range(n)
    ]
    made = ChatCompletion(
        new_id(), answers.created, answers.name, choices, usage_of(list(ends.values()), n)
    )
    made.timings = timings_of_one(ends.values())
    if verbose:
        made.verbose = await as_model_has_it(answers, ends[0], first)
    return made


async def chunks(
    answers: Answers, *, body: ChatRequest, verbose: bool
) -> AsyncGenerator[bytes, None]:
    """The events of a stream."""
    name, n = new_id(), body.n or 1
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    none: UnsetType | None = None if usage else UNSET

    def chunk(
        index: int, delta: Delta, tokens: ChatLogprobs | None = None,
        reason: FinishReason | None = None,
    ) -> ChatChunk:  # fmt: skip
        choice = ChunkChoice(index, delta, tokens, reason)
        return ChatChunk(name, answers.created, answers.name, [choice], usage=none)

    for index in range(n):
        yield data(encode(chunk(index, Delta("assistant", None))))
    tokens: list[list[int]] = [[] for _ in range(n)]
    ends: list[End] = []
    async for event in answers:
        made = []
        if isinstance(event, End):
            ends.append(event)
            last = chunk(event.index, Delta(), reason=finish_reason(event))
            last.choices[0].token_hash = event.token_hash
            last.timings = timings_of(event.timings)
            if verbose:
                last.verbose = await as_model_has_it(answers, event, tokens[event.index])
            yield data(encode(last))
            continue
        tokens[event.index] += event.token_ids
        if body.return_progress and event.evaluated is not None:
            made.append(chunk(event.index, Delta()))
            made[0].prompt_progress = progress_of(event) or UNSET
        logprobs = None
        if body.logprobs:
            logprobs = ChatLogprobs(chat_logprobs(answers.model, event.logprobs))
        for delta in deltas(event):
            made.append(chunk(event.index, delta, logprobs))
            logprobs = None
        for one in made:
            if body.timings_per_token and event.timings is not None:
                one.timings = timings_of(event.timings, event.evaluated)
            yield data(encode(one))
    if usage:
        counted = ChatChunk(
            name, answers.created, answers.name, [], usage=usage_of(ends, n),
            timings=timings_of_one(ends),
        )  # fmt: skip
        yield data(encode(counted))
    yield DONE


async def as_model_has_it(answers: Answers, end: End, tokens: list[int]) -> LlamaAnswer:
    """The text of the prompt and the answer's tokens, special ones too, and how it was made."""
    (prompt,) = answers.prompts

    def texts() -> tuple[str, str]:
        ids = answers.model.tokenize(prompt) if isinstance(prompt, str) else prompt
        return prompt_text(answers.model, ids), prompt_text(answers.model, tokens)

    prompt_as_read, text = await asyncio.to_thread(texts)
    return whole_answer(answers, end, text, prompt_as_read, tokens)


def deltas(piece: Piece) -> list[Delta]:
    """A piece's parts; an empty one where it has log-probabilities alone."""
    found = [delta_of(part) for part in piece.parts]
    return found or ([Delta(content="")] if piece.logprobs else [])


def delta_of(part: Part) -> Delta:
    """What a part adds to the message."""
    if isinstance(part, Text):
        return Delta(content=part.text)
    if isinstance(part, Reasoning):
        return Delta(reasoning_content=part.text)
    if isinstance(part, CallArguments):
        return Delta(tool_calls=[CallDelta(part.index, FunctionDelta(part.text))])
    start = CallDelta(part.index, FunctionDelta("", part.name), part.id, "function")
    return Delta(tool_calls=[start])


def finish_reason(end: End) -> FinishReason:
    """OpenAI's word for why an answer ended."""
    if end.reason == "length":
        return "length"
    return "tool_calls" if end.called else "stop"


def new_id() -> str:
    """The name of an answer."""
    return f"chatcmpl-{random_name()}"


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, chat_completions, "Answer a conversation.",
        body=ChatRequest, answer=ChatCompletion, event=ChatChunk, done=True,
    )
    for path in ("/v1/chat/completions", "/chat/completions")
)  # fmt: skip
