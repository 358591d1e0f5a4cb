"""OpenAI's chat completions: POST /v1/chat/completions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from functools import partial

from msgspec import UNSET, UnsetType

from trinity.conversation.parts import Part, Text
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.chat_answer import (
    ChatChunk,
    ChatCompletion,
    Choice,
    ChunkChoice,
    Delta,
    Deltas,
    FinishReason,
    Gathered,
    InContent,
)
from trinity.server.endpoints.chat_request import ChatRequest
from trinity.server.endpoints.llama_answer import LlamaAnswer, prompt_text, whole_answer
from trinity.server.endpoints.logprobs import ChatLogprobs, chat_logprobs
from trinity.server.endpoints.tools import Toolbox
from trinity.server.endpoints.usage import LlamaTimings, PromptProgress, Usage
from trinity.server.job import ChatJob, End
from trinity.server.schemas import encode
from trinity.server.service import Answers
from trinity.server.stream import DONE, Stream, data


async def chat_completions(call: Call[ChatRequest]) -> ASGI:
    """Generate responses to a conversation, streamed or complete."""
    body = call.body

    def asked() -> tuple[Toolbox, ChatJob]:
        box = body.box(call.ignored)
        return box, body.job(call.ignored, box, whole=not body.stream)

    box, job = await call.run(asked)  # schemas take their time
    more = await body.model_options(call)
    job = replace(job, options={**job.options, **more})
    verbose = body.verbose
    if verbose is None:
        verbose = call.service.settings.verbose_answers
    start = partial(call.start, body.model, job)
    if body.stream:
        return Stream(start, partial(chunks, body=body, box=box, verbose=verbose))
    with await start() as answers:
        return Json(await whole(answers, body, box, verbose=verbose))


class ShownParts:
    """The parts of one response that a client sees."""

    def __init__(self, body: ChatRequest) -> None:
        self._thoughts = InContent() if body.reasoning_format == "none" else None
        self._stop_shown = body.stop_shown

    def of(self, parts: Iterable[Part]) -> Iterable[Part]:
        """The parts to show."""
        return parts if self._thoughts is None else self._thoughts.of(parts)

    def at_end(self, end: End) -> Iterable[Part]:
        """The parts that the end adds."""
        text = self._stop_shown(end.stop)
        return (Text(text),) if text else ()


async def whole(
    answers: Answers, body: ChatRequest, box: Toolbox, *, verbose: bool
) -> ChatCompletion:
    """Join all choices in one completion."""
    n = body.count
    gathered = [Gathered(box) for _ in range(n)]
    shown = [ShownParts(body) for _ in range(n)]
    tokens: list[ChatLogprobs | None] = [
        ChatLogprobs([]) if body.logprobs else None for _ in range(n)
    ]
    first: list[int] = []
    ends: dict[int, End] = {}
    async for event in answers:
        if isinstance(event, End):
            ends[event.index] = event
            gathered[event.index].add(shown[event.index].at_end(event))
            continue
        gathered[event.index].add(shown[event.index].of(event.parts))
        shown_tokens = tokens[event.index]
        if shown_tokens is not None:
            shown_tokens.content += chat_logprobs(answers.model, event.logprobs, ids=True)
        if event.index == 0:
            first += event.token_ids
    choices = [
        Choice(i, gathered[i].message(), tokens[i], finish_reason(ends[i], box), ends[i].token_hash)
        for i in range(n)
    ]
    made = ChatCompletion(
        new_id(), answers.created, answers.name, choices, Usage.of(list(ends.values()), n)
    )
    made.timings = LlamaTimings.of_one(ends.values())
    if verbose:
        made.verbose = await as_model_has_it(answers, ends[0], first, body)
    return made


async def chunks(
    answers: Answers, *, body: ChatRequest, box: Toolbox, verbose: bool
) -> AsyncGenerator[bytes, None]:
    """The events of a stream."""
    name, n = new_id(), body.count
    answers.found_by(name)
    tokens: list[list[int]] = [[] for _ in range(n)]

    def usage(index: int) -> Usage | UnsetType | None:
        if body.continuous_usage:
            return Usage.so_far(answers.prompt_tokens[0], len(tokens[index]))
        return None if body.final_usage else UNSET

    def chunk(
        index: int,
        delta: Delta,
        logprobs: ChatLogprobs | None = None,
        reason: FinishReason | None = None,
    ) -> ChatChunk:
        choice = ChunkChoice(index, delta, logprobs, reason)
        return ChatChunk(name, answers.created, answers.name, [choice], usage=usage(index))

    shown = [ShownParts(body) for _ in range(n)]
    deltas = [Deltas(box) for _ in range(n)]
    ends: list[End] = []
    begun: set[int] = set()
    async for event in answers:
        made = []
        at = event.index
        if at not in begun:
            # Clients take the first event for the first token, and measure the time until then.
            begun.add(at)
            yield data(encode(chunk(at, Delta("assistant", None))))
        if isinstance(event, End):
            ends.append(event)
            for delta in (*deltas[at].rest(), *deltas[at].of(shown[at].at_end(event))):
                yield data(encode(chunk(at, delta)))
            last = chunk(at, Delta(), reason=finish_reason(event, box))
            last.choices[0].token_hash = event.token_hash
            last.timings = LlamaTimings.of(event.timings)
            if verbose:
                last.verbose = await as_model_has_it(answers, event, tokens[at], body)
            yield data(encode(last))
            continue
        tokens[at] += event.token_ids
        if body.return_progress and event.evaluated is not None:
            made.append(chunk(at, Delta()))
            made[0].prompt_progress = PromptProgress.of(event) or UNSET
        logprobs = None
        if body.logprobs:
            logprobs = ChatLogprobs(chat_logprobs(answers.model, event.logprobs, ids=True))
        made_deltas = list(deltas[at].of(shown[at].of(event.parts)))
        if not made_deltas and event.logprobs:
            made_deltas = [Delta(content="")]
        for delta in made_deltas:
            made.append(chunk(at, delta, logprobs))
            logprobs = None
        for outgoing in made:
            if body.timings_per_token and event.timings is not None:
                outgoing.timings = LlamaTimings.of(event.timings, event.evaluated)
            yield data(encode(outgoing))
    if body.final_usage:
        counted = ChatChunk(
            name, answers.created, answers.name, [], usage=Usage.of(ends, n),
            timings=LlamaTimings.of_one(ends),
        )  # fmt: skip
        yield data(encode(counted))
    yield DONE


async def as_model_has_it(
    answers: Answers, end: End, tokens: list[int], body: ChatRequest
) -> LlamaAnswer:
    """The rendered prompt and the response, with special tokens, and the options."""
    (prompt,) = answers.prompts

    def texts() -> tuple[str, str]:
        ids = prompt
        if isinstance(ids, str):
            ids = answers.model.tokenize(ids, add_eos=False)
        return prompt_text(answers.model, ids), prompt_text(answers.model, tokens)

    prompt_as_read, text = await answers.run(texts)
    return whole_answer(answers, end, text, prompt_as_read, body, tokens)


def finish_reason(end: End, box: Toolbox) -> FinishReason:
    """OpenAI's finish_reason."""
    if end.reason == "length":
        return "length"
    if not end.called:
        return "stop"
    return "function_call" if box.single else "tool_calls"


def new_id() -> str:
    """A new id of a completion."""
    return f"chatcmpl-{secrets.token_hex(16)}"


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, chat_completions, "Answer a conversation.",
        body=ChatRequest, answer=ChatCompletion, event=ChatChunk, done=True, generates=True,
    )
    for path in ("/v1/chat/completions", "/chat/completions")
)  # fmt: skip
