"""llama.cpp's own completion: POST /completion, and /completions as it has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trinity.runtime.options import Request
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.completions import text_of
from trinity.server.endpoints.logprobs import finite, token_bytes
from trinity.server.endpoints.sampling import Stop
from trinity.server.errors import ApiError
from trinity.server.job import End, Piece, TextJob
from trinity.server.schemas import Body, encode
from trinity.server.service import Answers
from trinity.server.stream import Stream, data
from trinity.server.structured import llama_options

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.generation import Timings
    from trinity.runtime.sampler import TokenLogprob

# llama.cpp's names of GenerationOptions.
NAMES = {
    "temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "repeat_penalty": "repetition_penalty", "repeat_last_n": "penalty_last_n",
    "frequency_penalty": "frequency_penalty", "presence_penalty": "presence_penalty",
    "stop": "stop", "ignore_eos": "ignore_eos", "cache_prompt": "cache_prompt",
}  # fmt: skip
Bias = list[int | float | str | bool]


class PromptObject(Body):
    """A prompt in the form that media would need, of which there are none here."""

    prompt_string: str


class LlamaRequest(Body, kw_only=True):
    """The body of POST /completion. ``n_predict`` -1 and ``seed`` -1 mean that none is given."""

    prompt: str | PromptObject | list[int | str | PromptObject | list[int | str]]
    model: str | None = None
    stream: bool = False
    n_predict: Annotated[int, Meta(ge=-1)] | None = None
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    stop: Stop | list[Stop] | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    ignore_eos: bool | None = None
    logit_bias: list[Bias] | dict[str, float | bool] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=1024)] = 0
    cache_prompt: bool | None = None
    return_tokens: bool = False
    response_fields: list[str] | None = None
    id_slot: Literal[-1] | None = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: str | None = None

    def options(self) -> dict[str, Any]:
        """GenerationOptions of what was given."""
        given = {ours: getattr(self, theirs) for theirs, ours in NAMES.items()}
        found = {name: value for name, value in given.items() if value is not None}
        most = self.n_predict if self.n_predict is not None else self.max_tokens
        if most is not None and most >= 0:
            found["max_tokens"] = most
        if self.seed is not None and self.seed >= 0:
            found["seed"] = self.seed
        if self.n_probs:
            found["logprobs"] = self.n_probs
        return found


class LlamaTop(msgspec.Struct):
    """One of the most probable tokens."""

    id: int
    token: str
    bytes: list[int]
    logprob: float


class LlamaLogprob(msgspec.Struct):
    """A token of the answer, and the most probable ones in its place."""

    id: int
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[LlamaTop]


class LlamaTimings(msgspec.Struct):
    """What an answer has cost, in llama.cpp's words; times in milliseconds."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class LlamaAnswer(msgspec.Struct):
    """An answer, or with ``stop`` false a piece of one."""

    index: int
    content: str
    tokens: list[int]
    stop: bool
    id_slot: int = -1
    model: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    generation_settings: dict[str, Any] | UnsetType = UNSET
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    has_new_line: bool | UnsetType = UNSET
    stop_type: Literal["eos", "word", "limit"] | UnsetType = UNSET
    stopping_word: str | UnsetType = UNSET
    timings: LlamaTimings | UnsetType = UNSET
    completion_probabilities: list[LlamaLogprob] | UnsetType = UNSET


@dataclass(slots=True)
class Gathered:
    """One answer so far."""

    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


async def completion(call: Call[LlamaRequest]) -> ASGI:
    """Complete prompts in llama.cpp's form."""
    body = call.body
    options = body.options()
    if body.json_schema is not None or body.grammar:
        options |= await asyncio.to_thread(llama_options, body.json_schema, body.grammar)
    with await call.service.models.lease(body.model) as model:
        if body.logit_bias is not None:
            options["logit_bias"] = await call.service.threads.run(bias_of, model, body.logit_bias)
        prompts = await call.service.threads.run(prompts_of, model, body.prompt)
    job = TextJob(prompts, options, body.n, whole=not body.stream)
    started = call.service.start(body.model, job)
    if body.stream:

        async def written(answers: Answers) -> AsyncGenerator[bytes, None]:
            async for answer in pieces(answers, job, body):
                yield data(encode(chosen(answer, body.response_fields)))

        return Stream(started, written)
    with await started as answers:
        found = [Gathered() for _ in range(len(prompts) * body.n)]
        ends: dict[int, End] = {}
        async for event in answers:
            if isinstance(event, End):
                ends[event.index] = event
            else:
                add(found[event.index], event)
        made = [
            chosen(last(answers, job, body, ends[i], one, whole=True), body.response_fields)
            for i, one in enumerate(found)
        ]
        return Json(made[0] if len(made) == 1 else made)


async def pieces(
    answers: Answers, job: TextJob, body: LlamaRequest
) -> AsyncGenerator[LlamaAnswer, None]:
    """The events of a stream."""
    found = [Gathered() for _ in answers.prompt_tokens for _ in range(job.n)]
    done = [0] * len(found)
    for_piece = [Gathered() for _ in found]
    async for event in answers:
        index = event.index
        prompt_tokens = answers.prompt_tokens[index // job.n]
        if isinstance(event, End):
            yield last(answers, job, body, event, found[index], whole=False)
            continue
        add(found[index], event)
        add(for_piece[index], event)
        if not event.parts:
            continue
        piece, for_piece[index] = for_piece[index], Gathered()
        done[index] += len(piece.tokens)
        yield LlamaAnswer(
            index, "".join(piece.text), piece.tokens, False,
            tokens_predicted=done[index], tokens_evaluated=prompt_tokens,
            completion_probabilities=logprobs(answers.model, piece) if body.n_probs else UNSET,
        )  # fmt: skip


def last(
    answers: Answers, job: TextJob, body: LlamaRequest, end: End, found: Gathered, *, whole: bool
) -> LlamaAnswer:
    """The whole answer, or the last piece of a stream, which has no text."""
    timings = end.timings
    prompt = job.prompts[end.index // job.n]
    text = "".join(found.text)
    reason: Literal["eos", "word", "limit"]
    reason = "limit" if end.reason == "length" else "eos" if end.stop is None else "word"
    return LlamaAnswer(
        end.index,
        text if whole else "",
        found.tokens if whole and body.return_tokens else [],
        True,
        model=answers.name,
        prompt=prompt_text(answers.model, prompt),
        generation_settings=settings(answers.model, answers.options),
        tokens_predicted=timings.completion_tokens,
        tokens_evaluated=timings.prompt_tokens,
        tokens_cached=timings.prompt_tokens + timings.completion_tokens,
        truncated=False,
        has_new_line="\n" in text,
        stop_type=reason,
        stopping_word=end.stop or "",
        timings=timings_of(timings),
        completion_probabilities=(
            logprobs(answers.model, found) if whole and body.n_probs else UNSET
        ),
    )


def prompt_text(model: Model, prompt: str | Sequence[int]) -> str:
    """A prompt as the model reads it, with the text of the token that it begins with."""
    ids = model.tokenize(prompt) if isinstance(prompt, str) else prompt
    return model.tokenizer.whole_text(ids)


def add(found: Gathered, piece: Piece) -> None:
    """Put a piece to what there is."""
    found.text.append(text_of(piece))
    found.tokens += piece.token_ids
    found.logprobs += piece.logprobs


def chosen(answer: LlamaAnswer, fields: list[str] | None) -> Any:
    """The answer, or its ``fields``, such as "generation_settings/n_predict"."""
    if not fields:
        return answer
    everything = msgspec.to_builtins(answer)
    found = {}
    for name in fields:
        value = everything
        for part in name.split("/"):
            value = value.get(part, UNSET) if isinstance(value, dict) else UNSET
        if value is not UNSET:
            found[name] = value
    return found


def logprobs(model: Model, found: Gathered) -> list[LlamaLogprob]:
    """Log-probabilities as llama.cpp has them."""
    return [
        LlamaLogprob(
            one.token_id, one.text, token_bytes(model, one.token_id), finite(one.logprob),
            [
                LlamaTop(
                    top.token_id, top.text, token_bytes(model, top.token_id), finite(top.logprob)
                )
                for top in one.top
            ],
        )
        for one in found.logprobs
    ]  # fmt: skip


def settings(model: Model, options: Any) -> dict[str, Any]:
    """The options that an answer had, in llama.cpp's words; those not given are the model's."""
    request = Request.of(**{**model.defaults.options, **options})
    sampling, limits = request.sampling, request.limits
    return {
        "n_predict": -1 if limits.max_tokens is None else limits.max_tokens,
        "seed": 2**32 - 1 if sampling.seed is None else sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": sampling.penalty_last_n,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "stop": list(limits.stop),
        "ignore_eos": limits.ignore_eos,
        "n_probs": limits.logprobs or 0,
    }


def timings_of(timings: Timings) -> LlamaTimings:
    """Timings in llama.cpp's words. The first token of an answer costs no step of its own."""
    evaluated = timings.prompt_tokens - timings.cached_tokens
    milliseconds = 1000 * timings.completion_seconds
    further = timings.completion_tokens - 1
    return LlamaTimings(
        timings.cached_tokens,
        evaluated,
        1000 * timings.prompt_seconds,
        1000 * timings.prompt_seconds / evaluated if evaluated else 0.0,
        timings.prompt_tokens_per_second,
        timings.completion_tokens,
        milliseconds,
        milliseconds / further if further > 0 else 0.0,
        1000 / milliseconds * further if milliseconds and further > 0 else 0.0,
    )


def prompts_of(model: Model, prompt: Any) -> list[str | list[int]]:
    """Each prompt. A list of ids and texts is one; one with lists, or of texts alone, is several.

    Raises: ApiError.
    """
    if isinstance(prompt, PromptObject):
        prompt = prompt.prompt_string
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError(400, "prompt is an empty list", "prompt")
    several = any(isinstance(one, list | PromptObject) for one in prompt)
    prompt = [one.prompt_string if isinstance(one, PromptObject) else one for one in prompt]
    if several or all(isinstance(one, str) for one in prompt):
        return [
            one if isinstance(one, str) else _mixed(model, [one] if isinstance(one, int) else one)
            for one in prompt
        ]
    return [_mixed(model, prompt)]


def _mixed(model: Model, parts: list[int | str]) -> list[int]:
    """The tokens of ids and texts in turn; a text at the beginning has the model's first token."""
    found: list[int] = []
    for place, part in enumerate(parts):
        if isinstance(part, int):
            found.append(part)
        else:
            found += model.tokenize(part, add_bos=place == 0, parse_special=True)
    return found


def bias_of(model: Model, given: list[Bias] | Mapping[str, float | bool]) -> dict[int, float]:
    """Additions to logits. Each is a pair of an id or a text and a number; false forbids.

    The names of an object are ids where they are numbers.

    Raises: ApiError.
    """
    found: dict[int, float] = {}
    pairs: Sequence[Sequence[int | float | str | bool]]
    if isinstance(given, Mapping):
        pairs = [(int(k) if k.isascii() and k.isdigit() else k, v) for k, v in given.items()]
    else:
        pairs = given
    for place, pair in enumerate(pairs):
        if len(pair) != 2 or isinstance(pair[1], str) or isinstance(pair[0], bool | float):
            raise ApiError(400, "expected [token, bias]", f"logit_bias[{place}]")
        token, value = pair
        bias = float("-inf") if value is False else float(value)
        if isinstance(token, str):
            for one in model.tokenize(token, add_bos=False):
                found[one] = bias
        else:
            found[int(token)] = bias
    return found


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, completion, "Complete prompts in llama.cpp's form.",
        body=LlamaRequest, answer=LlamaAnswer | list[LlamaAnswer], event=LlamaAnswer,
        chosen=True,
    )
    for path in ("/completion", "/completions")
)  # fmt: skip
