"""An answer in llama.cpp's form: what /completion gives, and others as ``__verbose``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.runtime.image_rows import is_token
from trinity.runtime.options import Request
from trinity.server.endpoints.logprobs import finite, token_bytes
from trinity.server.endpoints.sampling import SAMPLER_FIELDS, LlamaParameters
from trinity.server.endpoints.usage import LlamaTimings, PromptProgress
from trinity.server.job import End, Update

if TYPE_CHECKING:
    from trinity.model import Model
    from trinity.runtime.sampling.logprobs import TokenLogprob
    from trinity.server.service import Answers


class LlamaTop(msgspec.Struct):
    """One of the most probable tokens, with its log-probability or its probability."""

    id: int
    token: str
    bytes: list[int]
    logprob: float | UnsetType = UNSET
    prob: float | UnsetType = UNSET


class LlamaLogprob(LlamaTop):
    """A token of the answer, and the most probable ones in its place."""

    top_logprobs: list[LlamaTop] | UnsetType = UNSET
    top_probs: list[LlamaTop] | UnsetType = UNSET


class LlamaAnswer(msgspec.Struct):
    """A response, or with ``stop`` false a part of one."""

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
    prompt_progress: PromptProgress | UnsetType = UNSET
    completion_probabilities: list[LlamaLogprob] | UnsetType = UNSET
    token_hash: str | UnsetType = UNSET


@dataclass(slots=True)
class GatheredCompletion:
    """A response so far, or a part of it."""

    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def add(self, update: Update) -> None:
        """Add an update."""
        self.text.append(update.text)
        self.tokens += update.token_ids
        self.logprobs += update.logprobs


def whole_answer(
    answers: Answers, end: End, text: str, prompt: str, body: LlamaParameters,
    tokens: Sequence[int] = (),
) -> LlamaAnswer:  # fmt: skip
    """An answer that has ended, to a prompt that the model read as the text ``prompt``."""
    timings = end.timings
    reason: Literal["eos", "word", "limit"]
    reason = "limit" if end.reason == "length" else "eos" if end.stop is None else "word"
    total, length = timings.prompt_tokens + timings.completion_tokens, answers.model.context_length
    return LlamaAnswer(
        end.index,
        text,
        [*tokens],
        True,
        model=answers.name,
        prompt=prompt,
        generation_settings=settings(answers.model, answers.options, body),
        tokens_predicted=timings.completion_tokens,
        tokens_evaluated=timings.prompt_tokens,
        # The last token of a response is not evaluated.
        tokens_cached=min(total - min(timings.completion_tokens, 1), length),
        # It went on until the context was full, or beyond that.
        truncated=total > length or (end.reason == "length" and total == length),
        has_new_line="\n" in text,
        stop_type=reason,
        stopping_word=end.stop or "",
        timings=LlamaTimings.of(timings),
        token_hash=end.token_hash,
    )


def probabilities(
    model: Model, tokens: Iterable[TokenLogprob], *, drawn: bool
) -> list[LlamaLogprob]:
    """Convert log-probabilities as llama.cpp does; for ``drawn``, to probabilities."""
    if drawn:
        return [
            LlamaLogprob(*named(model, token), prob=math.exp(token.logprob),
                         top_probs=[LlamaTop(*named(model, top), prob=math.exp(top.logprob))
                                    for top in token.top])
            for token in tokens
        ]  # fmt: skip
    return [
        LlamaLogprob(*named(model, token), logprob=finite(token.logprob),
                     top_logprobs=[LlamaTop(*named(model, top), logprob=finite(top.logprob))
                                   for top in token.top])
        for token in tokens
    ]  # fmt: skip


def named(model: Model, token: TokenLogprob) -> tuple[int, str, list[int]]:
    """A token's id, text and bytes."""
    return token.token_id, token.text, token_bytes(model, token.token_id)


def settings(
    model: Model, options: Mapping[str, Any], body: LlamaParameters | None = None
) -> dict[str, Any]:
    """The options of a request under llama.cpp's names; the model's defaults where it gave none.

    ``body`` is the request; without one, a request that gives nothing and is streamed.
    """
    request = Request.of(**{**model.defaults.options, **options})
    sampling, limits = request.sampling, request.limits
    most = -1 if limits.max_tokens is None else limits.max_tokens
    return {
        "n_predict": most,
        "max_tokens": most,
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
        "logit_bias": [
            {"token": token, "bias": bias if math.isfinite(bias) else None}
            for token, bias in (sampling.logit_bias or {}).items()
        ],
        "n_probs": limits.logprobs or 0,
        "post_sampling_probs": limits.processed_logprobs,
        "lora": [
            {"id": number, "scale": scale} for number, scale in sorted((request.lora or {}).items())
        ],
        "n_keep": -1 if limits.keep is None else limits.keep,
        "n_discard": 0,
        "min_keep": 0,
        "stream": body is None or bool(body.stream),
        "grammar": (body and body.grammar) or "",
        "timings_per_token": bool(body and body.timings_per_token),
        "samplers": list(sampling.samplers),
        **{name: getattr(sampling, name) for name in SAMPLER_FIELDS},
    }


def prompt_text(model: Model, ids: Sequence[int]) -> str:
    """A prompt as the model reads it, with the text of the token that it begins with.

    Images have no text.
    """
    return model.tokenizer.whole_text(list(filter(is_token, ids)))
