"""POST /v1/responses: complete a conversation, streamed, in the background, or neither."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trinity.server.endpoint import ASGI, Call, Json
from trinity.server.endpoints.logprobs import chat_logprobs
from trinity.server.endpoints.responses import background
from trinity.server.endpoints.responses.answer import (
    Completed,
    CutShort,
    InputTokens,
    Response,
    StreamEvent,
    new_id,
)
from trinity.server.endpoints.responses.request import ResponsesRequest
from trinity.server.endpoints.responses.writer import ResponseWriter
from trinity.server.endpoints.tools import Toolbox
from trinity.server.errors import api_error
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob
from trinity.server.kept_responses import (
    ConnectionResponses,
    KeptResponses,
    kept_response,
    resolved,
)
from trinity.server.prepared import chat_prompt
from trinity.server.response_files import KeptResponse
from trinity.server.schemas import encode
from trinity.server.service import Answers
from trinity.server.stream import Stream, event


async def responses(call: Call[ResponsesRequest]) -> ASGI:
    """Complete a conversation, streamed or not."""
    body, context = call.body, await Context.of(call)
    box, job = await call.run(asked, call.ignored, body, context)
    start = partial(call.start, body.model, job)
    if body.stream:
        return Stream(start, partial(events, partial(writer_of, body, box), context, written))
    if body.background:
        answers = await start()
        writer = writer_of(body, box, answers)
        keep = partial(context.keep, answers, writer.response)
        made = partial(context.made, answers, writer.response)
        return await background.begin(context.kept, writer, answers, made, keep)
    with await start() as answers:
        writer = writer_of(body, box, answers)
        async for _ in answers.by(writer):
            pass
        await context.keep(answers, writer.response)
        return Json(writer.response)


@dataclass(frozen=True, slots=True)
class Context:
    """The response that a request follows, and the request's items with references resolved.

    ``own``: the responses of the request's WebSocket that are not stored.
    """

    kept: KeptResponses
    own: ConnectionResponses | None
    before: KeptResponse | None
    items: Sequence[dict[str, Any]]

    @classmethod
    async def of(cls, call: Call[Any]) -> Context:
        """Return the context of a request. Raises: ApiError for a response that is not stored."""
        body: ResponsesRequest = call.body
        kept = call.responses
        own: ConnectionResponses | None = call.request.scope.get(ConnectionResponses.SCOPE)
        before = None
        if body.previous_response_id is not None:
            before = None if own is None else own.get(body.previous_response_id)
            before = before or kept.find(body.previous_response_id, "previous_response_id")
        newest = kept.newest_first()
        items = await call.run(lambda: resolved(body.items, newest))
        return cls(kept, own, before, items)

    @property
    def earlier(self) -> Sequence[dict[str, Any]]:
        """The items of the conversation before the request."""
        return () if self.before is None else self.before.conversation

    async def keep(self, answers: Answers, response: Response) -> None:
        """Store a response. If the request says not to, only its WebSocket can refer to it."""
        store = self.kept if response.store else self.own
        if store is not None:
            await store.store(answers.run, response.id, await self.made(answers, response))

    async def made(self, answers: Answers, response: Response) -> KeptResponse:
        """Return a response as it is stored."""
        return await answers.run(lambda: kept_response(encode(response), self.items, self.before))


def asked(ignored: Ignored, body: ResponsesRequest, context: Context) -> tuple[Toolbox, ChatJob]:
    """Return the tools of a request and its job. Raises: ApiError."""
    box = body.box(ignored)
    return box, body.job(ignored, box, context.earlier, context.items)


async def events(
    begun: Callable[[Answers], ResponseWriter], context: Context,
    written: Callable[[StreamEvent], bytes], answers: Answers,
) -> AsyncGenerator[bytes, None]:  # fmt: skip
    """Yield the events of a stream, encoded by ``written``. ``begun`` makes the writer."""
    writer = begun(answers)
    for first in writer.begin():
        yield written(first)
    try:
        async for stream_event in answers.by(writer):
            if isinstance(stream_event, Completed | CutShort):
                await context.keep(answers, writer.response)
            yield written(stream_event)
    except Exception as error:
        yield written(writer.fail(api_error(error).message))


async def input_tokens(call: Call[ResponsesRequest]) -> ASGI:
    """Count the tokens of a request's prompt."""
    _, job = await call.run(asked, call.ignored, call.body, await Context.of(call))
    settings = call.service.prompts
    with await call.lease(call.body.model) as model:
        prompt = await call.run(chat_prompt, call.ignored, model, job, settings)
        return Json(InputTokens(len(prompt.ids)))


def written(stream_event: StreamEvent) -> bytes:
    """Encode an event with its name."""
    return event(str(stream_event.__struct_config__.tag), encode(stream_event))


def writer_of(
    body: ResponsesRequest, box: Toolbox, answers: Answers, *, is_empty: bool = False
) -> ResponseWriter:
    """Return the writer of the response."""
    return ResponseWriter(
        empty_response(body, answers.name, answers.created),
        partial(chat_logprobs, answers.model),
        custom=box.custom,
        progress=bool(body.return_progress),
        timed=bool(body.timings_per_token),
        is_empty=is_empty,
    )


def empty_response(body: ResponsesRequest, model: str, created: int) -> Response:
    """Return a response in progress, with the parameters of its request."""
    text: Any = {"format": {"type": "text"}, "verbosity": "medium"}
    if body.text is not None and body.text.format:
        given = body.text.format
        text["format"] = {name: value for name, value in given.items() if value is not None}
    reasoning = None if body.reasoning is None else body.reasoning
    return Response(
        new_id("resp"), created, model, "in_progress", [],
        instructions=body.instructions, metadata=body.metadata or {},
        parallel_tool_calls=body.parallel_tool_calls is not False,
        temperature=body.temperature, top_p=body.top_p,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        tool_choice="auto" if body.tool_choice is None else body.tool_choice,
        tools=[shown(tool) for tool in body.tools or ()],
        max_output_tokens=body.max_output_tokens, max_tool_calls=body.max_tool_calls,
        reasoning={"effort": None if reasoning is None else reasoning.effort, "summary": None},
        text=text, top_logprobs=body.top_logprobs or 0, user=body.user,
        safety_identifier=body.safety_identifier, prompt_cache_key=body.prompt_cache_key,
        previous_response_id=body.previous_response_id, store=body.store is not False,
    )  # fmt: skip


def shown(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as the response repeats it, a function with all fields."""
    if tool.get("type") != "function":
        return tool
    inner = tool.get("function", tool)
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", **{name: inner.get(name) for name in names}}
