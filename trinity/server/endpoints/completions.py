"""OpenAI's text completions: POST /v1/completions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.logprobs import finite
from trinity.server.endpoints.sampling import Sampling
from trinity.server.endpoints.usage import FINGERPRINT, LlamaTimings, PromptProgress, Usage
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.job import End, TextJob
from trinity.server.schemas import encode, encoded
from trinity.server.service import Answers
from trinity.server.stream import DONE, Stream, data

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.sampling.logprobs import TokenLogprob

USUAL_TOKENS = 16  # OpenAI's max_tokens where none is given
Prompt = str | list[int]
Prompts = str | list[str | int | list[int]]


class CompletionRequest(Sampling, kw_only=True):
    """The body of POST /v1/completions.

    ``prompt`` is a text, token ids, or several of either. ``best_of`` has no effect: the answers
    are the first ones.
    """

    prompt: Prompts
    echo: bool | None = None
    logprobs: bool | Annotated[int, Meta(ge=0, le=20)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None  # vLLM's, as the next
    add_special_tokens: bool | None = None
    suffix: str | None = None
    best_of: Ignorable[Literal[1] | None] = None

    def __post_init__(self) -> None:
        if isinstance(self.logprobs, bool):  # in the form of chat completions
            self.logprobs = 1 if self.logprobs else None

    def job(self, ignored: Ignored, *, whole: bool) -> TextJob:
        """Return the job. Raises: ApiError for a prompt of another type."""
        options = self.options(ignored) | self.form_options(ignored)
        options["parse_special"] = True
        if self.add_special_tokens is not None:
            options["add_bos"] = self.add_special_tokens
        if self.n_predict is None:
            options.setdefault("max_tokens", USUAL_TOKENS)
        if self.logprobs is not None:
            options["logprobs"] = self.logprobs
        if self.stream_options is not None and not self.stream:
            ignored.add("stream_options")
        if self.suffix and self.echo:
            raise ApiError(400, "suffix cannot be used with echo", "suffix")
        if self.prompt_logprobs is not None and self.stream:
            raise ApiError(400, "prompt_logprobs cannot be used with stream", "prompt_logprobs")
        return TextJob(prompts_of(self.prompt), options, self.count, whole)


class CompletionLogprobs(msgspec.Struct):
    """Log-probabilities, each list with a place for each token.

    The first token of a prompt that is echoed has none, null.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(msgspec.Struct):
    """The log-probability of a token of the prompt, in vLLM's form.

    ``rank`` is the number of tokens that are at least as probable; null if it is not among the
    most probable ones that were requested.
    """

    logprob: float
    rank: int | None
    decoded_token: str


class CompletionChoice(msgspec.Struct):
    """A response, or a chunk's part of it; the last chunk has the hash of all tokens."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None
    token_hash: str | UnsetType = UNSET
    # For each token of the prompt but the first: that token and the most probable ones, by id.
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET


class TextCompletion(msgspec.Struct):
    """The responses to prompts, or a chunk of a stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: Literal["text_completion"] = "text_completion"
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str = FINGERPRINT
    timings: LlamaTimings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET


@dataclass(slots=True)
class CompletionWriter:
    """The text of one response so far, after the prompt if that is echoed."""

    wants: bool
    offset: int = 0
    text: list[str] = field(default_factory=list)
    logprobs: CompletionLogprobs = field(default_factory=lambda: CompletionLogprobs([], [], [], []))

    def add(self, text: str, tokens: Sequence[TokenLogprob | tuple[str, None]]) -> None:
        """A piece of text with its tokens; (text, None) for one without a log-probability."""
        self.text.append(text)
        for token in tokens if self.wants else ():
            name = token[0] if isinstance(token, tuple) else token.text
            self.logprobs.tokens.append(name)
            self.logprobs.text_offset.append(self.offset)
            # A token that was put before a prompt is not part of its text.
            if not isinstance(token, tuple) or text.startswith(name):
                self.offset += len(name)
            if isinstance(token, tuple):
                self.logprobs.token_logprobs.append(None)
                self.logprobs.top_logprobs.append(None)
                continue
            top = {other.text: finite(other.logprob) for other in reversed(token.top)}
            top.setdefault(token.text, finite(token.logprob))
            self.logprobs.token_logprobs.append(finite(token.logprob))
            self.logprobs.top_logprobs.append(encoded(top))

    def take(self) -> tuple[str, CompletionLogprobs | None]:
        """Return what was added since the last call."""
        text, logprobs = "".join(self.text), self.logprobs
        self.text, self.logprobs = [], CompletionLogprobs([], [], [], [])
        return text, logprobs if self.wants else None


async def completions(call: Call[CompletionRequest]) -> ASGI:
    """Complete prompts, streamed or not."""
    body = call.body
    job = await call.run(body.job, call.ignored, whole=not body.stream)  # schemas take their time
    asked = await body.model_options(call)
    job = replace(job, options={**job.options, **asked})
    if body.suffix:
        with await call.lease(body.model) as model:
            job = await call.run(infilling, model, job, body.suffix)
    start = partial(call.start, body.model, job)
    if body.stream:

        async def written(answers: Answers) -> AsyncGenerator[bytes, None]:
            async for chunk in chunks(answers, job, body):
                yield data(encode(chunk))
            yield DONE

        return Stream(start, written)
    with await start() as answers:
        writers = await beginnings(answers, job, body)
        ends: dict[int, End] = {}
        async for event in answers:
            if isinstance(event, End):
                ends[event.index] = event
                writers[event.index].add(body.stop_shown(event.stop), ())
            else:
                writers[event.index].add(event.text, event.logprobs)
        choices = [
            CompletionChoice(i, *writer.take(), reason_of(ends[i]), ends[i].token_hash)
            for i, writer in enumerate(writers)
        ]
        if body.prompt_logprobs is not None:
            for place, prompt in enumerate(answers.prompts):
                _, rest = await scored(answers, prompt, body.prompt_logprobs)
                entries = await answers.run(prompt_entries, rest)
                for choice in choices[place * job.n : (place + 1) * job.n]:
                    choice.prompt_logprobs = entries
        usage = Usage.of(list(ends.values()), job.n)
        made = TextCompletion(new_id(), answers.created, answers.name, choices, usage=usage)
        made.timings = LlamaTimings.of_one(ends.values())
        return Json(made)


async def chunks(
    answers: Answers, job: TextJob, body: CompletionRequest
) -> AsyncGenerator[TextCompletion, None]:
    """The events of a stream."""
    name = new_id()
    writers = await beginnings(answers, job, body)
    counts = [0] * len(writers)

    def usage(index: int) -> Usage | UnsetType | None:
        if body.continuous_usage:
            return Usage.so_far(answers.prompt_tokens[index // job.n], counts[index])
        return None if body.final_usage else UNSET

    def chunk(index: int, reason: Literal["stop", "length"] | None = None) -> TextCompletion:
        choice = CompletionChoice(index, *writers[index].take(), reason)
        if reason is not None and not choice.text:
            choice.logprobs = None
        return TextCompletion(name, answers.created, answers.name, [choice], usage=usage(index))

    if body.echo:
        for index in range(len(writers)):
            yield chunk(index)
    ends: list[End] = []
    async for event in answers:
        if isinstance(event, End):
            ends.append(event)
            writers[event.index].add(body.stop_shown(event.stop), ())
            made = chunk(event.index, reason_of(event))
            made.choices[0].token_hash = event.token_hash
            made.timings = LlamaTimings.of(event.timings)
            yield made
            continue
        writers[event.index].add(event.text, event.logprobs)
        counts[event.index] += len(event.token_ids)
        progress = PromptProgress.of(event) if body.return_progress else None
        if event.parts or progress is not None:
            made = chunk(event.index)
            made.prompt_progress = progress or UNSET
            if body.timings_per_token and event.timings is not None:
                made.timings = LlamaTimings.of(event.timings, event.evaluated)
            yield made
    if body.final_usage:
        counted = Usage.of(ends, job.n)
        made = TextCompletion(name, answers.created, answers.name, [], usage=counted)
        made.timings = LlamaTimings.of_one(ends)
        yield made


async def beginnings(
    answers: Answers, job: TextJob, body: CompletionRequest
) -> list[CompletionWriter]:
    """A writer for each response; it starts with the prompt if that is echoed."""
    wants = body.logprobs is not None
    writers = [CompletionWriter(wants) for _ in range(job.n * len(job.prompts))]
    for place, prompt in enumerate(job.prompts if body.echo else ()):
        model = answers.model
        text = prompt
        if not isinstance(text, str):
            text = await answers.run(model.detokenize, text)
        tokens: list[TokenLogprob | tuple[str, None]] = []
        if body.logprobs is not None:
            first, rest = await scored(answers, answers.prompts[place], body.logprobs)
            tokens = [(first, None), *rest]
        for writer in writers[place * job.n : (place + 1) * job.n]:
            await answers.run(writer.add, text, tokens)
    return writers


async def scored(
    answers: Answers, prompt: str | Sequence[int], top: int
) -> tuple[str, list[TokenLogprob]]:
    """The text of a prompt's first token, and the log-probabilities of the others."""
    return await answers.model.aprompt_logprobs(
        prompt, top=top, parse_special=True, lora=answers.options.get("lora"), client=answers.client
    )


def prompt_entries(tokens: Sequence[TokenLogprob]) -> list[dict[str, PromptLogprob] | None]:
    """The log-probabilities of a prompt in vLLM's form, each one encoded already."""
    entries: list[dict[str, PromptLogprob] | None] = [None]
    for token in tokens:
        listed = {
            str(top.token_id): PromptLogprob(finite(top.logprob), rank, top.text)
            for rank, top in enumerate(token.top, 1)
        }
        listed.setdefault(
            str(token.token_id), PromptLogprob(finite(token.logprob), None, token.text)
        )
        entries.append(encoded(listed))
    return entries


def prompts_of(prompt: Prompts) -> list[Prompt]:
    """Each prompt, a text or token ids. Raises: ApiError."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError(400, "prompt is an empty list", "prompt")
    ids = [part for part in prompt if isinstance(part, int)]
    if len(ids) == len(prompt):
        return [ids]
    if ids:
        raise ApiError(400, "prompt mixes token ids with other prompts", "prompt")
    return [part for part in prompt if not isinstance(part, int)]


def infilling(model: Model, job: TextJob, suffix: str) -> TextJob:
    """The job of infilling between each prompt and ``suffix``. Raises: ApiError."""
    marks = model.tokenizer.infill_ids
    if marks is None:
        raise ApiError(400, "suffix: the model has no tokens for infilling", "suffix")

    def tokens(text: str | Sequence[int]) -> list[int]:
        return model.tokenize(text, add_bos=False) if isinstance(text, str) else list(text)

    bos = model.tokenize("", add_eos=False)  # the token that the model begins with, if any
    before, after, middle = marks
    prompts = [
        [*bos, before, *tokens(prompt), after, *tokens(suffix), middle] for prompt in job.prompts
    ]
    return replace(job, prompts=prompts)


def reason_of(end: End) -> Literal["stop", "length"]:
    """OpenAI's finish_reason."""
    return "length" if end.reason == "length" else "stop"


def new_id() -> str:
    """A new id of a completion."""
    return f"cmpl-{secrets.token_hex(16)}"


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/completions", completions, "Complete prompts.",
        body=CompletionRequest, answer=TextCompletion, event=TextCompletion, done=True,
        generates=True,
    ),
)  # fmt: skip
