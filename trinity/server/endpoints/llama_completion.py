"""llama.cpp's own completion: POST /completion, and /completions as it has it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from trinity.conversation.messages import decoded_image
from trinity.runtime.prompts import check_length, checked_ids
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.llama_answer import (
    GatheredCompletion,
    LlamaAnswer,
    probabilities,
    prompt_text,
    whole_answer,
)
from trinity.server.endpoints.logit_bias import bias_of
from trinity.server.endpoints.sampling import LlamaParameters
from trinity.server.endpoints.usage import LlamaTimings, PromptProgress
from trinity.server.errors import LLAMA, ApiError
from trinity.server.ignored import Ignored
from trinity.server.job import End, TextJob, Update
from trinity.server.schemas import Body, encode, encoded
from trinity.server.service import Answers
from trinity.server.stream import Stream, data

if TYPE_CHECKING:
    from trinity.model import Model


MOST_FIELDS = 64  # of an answer that a request chooses; there are about 50
Field = Annotated[str, Meta(max_length=128)]


MEDIA_MARKER = "<__media__>"  # as llama.cpp has it without a random one
MOST_IMAGES = 64  # of a prompt


class PromptObject(Body):
    """A prompt with images in base64, for which MEDIA_MARKER stands in the text."""

    prompt_string: str
    multimodal_data: Annotated[list[str], Meta(max_length=MOST_IMAGES)] | None = None


MOST_PROBS = 2048  # of all answers to a request: they are found in each step
# An event with at most this many probabilities is encoded on the event loop, in a millisecond.
FEW_PROBABILITIES = 100


class LlamaRequest(LlamaParameters, kw_only=True):
    """The body of POST /completion. ``n_predict`` -1: no limit; ``seed`` -1: random."""

    prompt: str | PromptObject | list[int | str | PromptObject | list[int | str]]
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=1024)] = 0
    post_sampling_probs: bool = False
    return_tokens: bool = False
    response_fields: Annotated[list[Field], Meta(max_length=MOST_FIELDS)] | None = None

    def options(self, ignored: Ignored) -> dict[str, Any]:
        """Return the ``GenerationOptions``. Raises: ApiError."""
        options = {name: value for name, value in self.draw_options().items() if value is not None}
        options |= self.llama_options(ignored)
        most = self.n_predict if self.n_predict is not None else self.max_tokens
        if most is not None and most >= 0:
            options["max_tokens"] = most
        if self.seed is not None:
            options["seed"] = None if self.seed < 0 else self.seed
        if self.post_sampling_probs and not self.n_probs:
            ignored.add("post_sampling_probs")
        if self.n_probs * self.count > MOST_PROBS:
            raise ApiError(
                400,
                f"n_probs of all choices together are {self.n_probs * self.count}; at most "
                f"{MOST_PROBS} are supported",
                "n_probs",
            )
        if self.n_probs:
            options["logprobs"] = self.n_probs
            options["processed_logprobs"] = self.post_sampling_probs
        return options | self.sampler_options(ignored)


async def completion(call: Call[LlamaRequest]) -> ASGI:
    """Complete prompts in llama.cpp's form."""
    body = call.body
    options = body.options(call.ignored)
    options |= await body.model_options(call)
    options |= await call.run(body.form_options, call.ignored)
    with await call.lease(body.model) as model:
        if body.logit_bias is not None or body.ignore_eos:
            bias = await call.run(bias_of, model, body.logit_bias or {})
            if body.ignore_eos:  # as in llama.cpp's server they cannot even come
                bias |= dict.fromkeys(model.tokenizer.eog_ids, float("-inf"))
            options["logit_bias"] = bias
        prompts, texts = await call.run(prompts_of, model, body.prompt)
    job = TextJob(prompts, options, body.count, whole=not body.stream)
    start = partial(call.start, body.model, job)
    if body.stream:

        async def written(answers: Answers) -> AsyncGenerator[bytes, None]:
            async for answer in pieces(answers, texts, body):
                yield data(encode(chosen(answer, body.response_fields)))

        return Stream(start, written, family=LLAMA)
    with await start() as answers:
        gathered = [GatheredCompletion() for _ in range(len(prompts) * body.count)]

        def probable(model: Model, update: Update) -> list[Any]:
            made = probabilities(model, update.logprobs, drawn=body.post_sampling_probs)
            return [encoded(probability) for probability in made]

        shown: list[list[Any]] = [[] for _ in gathered]
        ends: dict[int, End] = {}
        async for event in answers:
            if isinstance(event, End):
                ends[event.index] = event
                continue
            gathered[event.index].add(replace(event, logprobs=()))
            if event.logprobs:
                shown[event.index] += await answers.run(probable, answers.model, event)

        def put_together() -> Json:
            made = []
            for i, response in enumerate(gathered):
                tokens = response.tokens if body.return_tokens else ()
                text = "".join(response.text)
                answer = whole_answer(answers, ends[i], text, texts[i // body.count], body, tokens)
                if body.n_probs:
                    answer.completion_probabilities = shown[i]
                made.append(chosen(answer, body.response_fields))
            return Json(made[0] if len(made) == 1 else made)

        return await answers.run(put_together)


async def pieces(
    answers: Answers, texts: Sequence[str], body: LlamaRequest
) -> AsyncGenerator[LlamaAnswer, None]:
    """Yield the chunks of a stream; a response's last one has no text."""
    gathered = [GatheredCompletion() for _ in range(len(texts) * body.count)]
    for_piece = [GatheredCompletion() for _ in gathered]
    async for event in answers:
        index = event.index
        if isinstance(event, End):
            text = "".join(gathered[index].text)
            answer = whole_answer(answers, event, text, texts[index // body.count], body)
            answer.content = ""
            yield answer
            continue
        gathered[index].add(event)
        for_piece[index].add(event)
        progress = PromptProgress.of(event) if body.return_progress else None
        if not event.parts and progress is None:
            continue
        piece, for_piece[index] = for_piece[index], GatheredCompletion()
        answer = LlamaAnswer(
            index, "".join(piece.text), piece.tokens, False,
            tokens_predicted=len(gathered[index].tokens),
            tokens_evaluated=answers.prompt_tokens[index // body.count],
            prompt_progress=progress or UNSET,
        )  # fmt: skip
        if body.n_probs and progress is None:
            listed = partial(
                probabilities, answers.model, piece.logprobs, drawn=body.post_sampling_probs
            )
            is_many = sum(len(token.top) for token in piece.logprobs) > FEW_PROBABILITIES
            answer.completion_probabilities = await answers.run(listed) if is_many else listed()
        if body.timings_per_token and event.timings is not None:
            answer.timings = LlamaTimings.of(event.timings, event.evaluated)
        yield answer


def chosen(answer: LlamaAnswer, fields: list[str] | None) -> Any:
    """Return the response, or its ``fields`` such as "generation_settings/n_predict"."""
    if not fields:
        return answer
    everything = msgspec.json.decode(encode(answer))
    picked = {}
    for name in fields:
        value = everything
        for part in name.split("/"):
            value = value.get(part, UNSET) if isinstance(value, dict) else UNSET
        if value is not UNSET:
            picked[name] = value
    return picked


def prompts_of(model: Model, prompt: Any) -> tuple[list[list[int]], list[str]]:
    """Return the tokens of each prompt, and its text as the model reads it.

    A list of ids and texts is one prompt; a list of lists, or of texts only, is several. Special
    tokens in a text are parsed, as in llama.cpp's server. Raises: ApiError.
    """
    if isinstance(prompt, str | PromptObject):
        parts = [[prompt]]
    elif not prompt:
        raise ApiError(400, "prompt is an empty list", "prompt")
    elif any(isinstance(part, list | PromptObject) for part in prompt) or all(
        isinstance(part, str) for part in prompt
    ):
        parts = [part if isinstance(part, list) else [part] for part in prompt]
    else:
        parts = [prompt]
    prompts = [prompt_with_images(model, part) for part in parts]
    return prompts, [prompt_text(model, ids) for ids in prompts]


def prompt_with_images(model: Model, parts: Sequence[int | str | PromptObject]) -> list[int]:
    """Return the tokens of one prompt, and rows of its images. Raises: ApiError, InputError."""
    first = parts[0] if len(parts) == 1 else None
    if not isinstance(first, PromptObject) or not first.multimodal_data:
        return checked_ids(mixed_ids(model, parts), model.config.vocab_size)
    where = "multimodal_data"
    if not model.reads_images:
        raise ApiError(
            400, f"{where}: the model reads only text, not images: ask a vision model", where
        )
    given = enumerate(first.multimodal_data)
    images = [decoded_image(f"{where}[{number}]", text) for number, text in given]
    check_length(first.prompt_string, model.tokenizer, model.context_length)
    return model.image_prompt(first.prompt_string, images, MEDIA_MARKER)


def mixed_ids(model: Model, parts: Sequence[int | str | PromptObject]) -> list[int]:
    """Return the tokens of ids and texts; a text at the beginning gets BOS.

    Raises: ContextLengthError if a text is too long for the context, before it is tokenized.
    """
    ids: list[int] = []
    for place, part in enumerate(parts):
        if isinstance(part, int):
            ids.append(part)
        else:
            text = part if isinstance(part, str) else part.prompt_string
            check_length(text, model.tokenizer, model.context_length)
            ids += model.tokenize(text, add_bos=place == 0, add_eos=False, parse_special=True)
    return ids


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, completion, "Complete prompts in llama.cpp's form.",
        body=LlamaRequest, answer=LlamaAnswer | list[LlamaAnswer], event=LlamaAnswer,
        chosen=True, generates=True, family=LLAMA,
    )
    for path in ("/completion", "/completions")
)  # fmt: skip
