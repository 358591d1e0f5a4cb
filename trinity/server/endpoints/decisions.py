"""OpenAI's decisions: typed answers with probabilities, in place of text. POST /v1/decisions.

Each question becomes a prompt: the input, then the question with its options, each of which has a
label of one token. The probabilities of the labels as the first token of the response, scaled to
add up to 1, are the answer. All prompts begin alike, so the input is computed once.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from trinity.runtime.generation import Timings
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.messages import Content, content_of, together
from trinity.server.endpoints.responses.answer import InputDetails, OutputDetails, ResponseUsage
from trinity.server.endpoints.responses.items import items_of, messages_of
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.job import ChatJob, End
from trinity.server.schemas import Body
from trinity.server.service import Answers
from trinity.server.thinking import NONE

if TYPE_CHECKING:
    from trinity.model import Model

AT_ONCE = 8  # the most questions that are computed together
# Added to the logits of labels, so that they are the most probable tokens. The ratios of their
# probabilities do not change.
_BIAS = 100.0
# The model's own probabilities: without the samplers that a preset may have.
_PLAIN = {
    "temperature": 1.0, "samplers": ("temperature",), "dynatemp_range": 0.0, "mirostat": 0,
    "max_tokens": 1, "seed": 0, "processed_logprobs": True,
}  # fmt: skip
_WORDS = ("Yes", "No")

Instructions = str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
Value = str | bool


class PredicateQuestion(Body, tag_field="type", tag="predicate"):
    """How probable is it that a statement about the input is true?"""

    instructions: Instructions
    name: str | None = None


class ChoiceOption(Body):
    """A value to choose."""

    value: Value
    description: str | None = None


class ChoiceQuestion(Body, tag_field="type", tag="choice"):
    """Which of these values fits the input?"""

    instructions: Instructions
    choices: Annotated[list[ChoiceOption], Meta(min_length=2, max_length=255)]
    name: str | None = None


class ScoreLevel(Body):
    """A level of a scale."""

    label: str
    description: str | None = None


class ScoreQuestion(Body, tag_field="type", tag="score"):
    """Which of these levels does the input have?"""

    instructions: Instructions
    levels: Annotated[list[ScoreLevel], Meta(min_length=2, max_length=255)]
    name: str | None = None


Question = PredicateQuestion | ChoiceQuestion | ScoreQuestion


class DecisionRequest(Body):
    """Questions about an input: a text, or items as in POST /v1/responses."""

    input: str | list[dict[str, Any]]
    questions: Annotated[list[Question], Meta(min_length=1, max_length=400)]
    model: str | None = None
    prompt_cache_key: Ignorable[str | None] = None
    prompt_cache_options: Ignorable[dict[str, Any] | None] = None
    safety_identifier: Ignorable[str | None] = None


class PredicateAnswer(msgspec.Struct, tag_field="type", tag="predicate"):
    """The probability that the statement is true."""

    name: str | None
    probability: float


class ChoiceProbability(msgspec.Struct):
    """The probability of a value."""

    value: Value
    probability: float


class ChoiceAnswer(msgspec.Struct, tag_field="type", tag="choice"):
    """The most probable value; ``confidence`` is its probability."""

    name: str | None
    choice: Value
    confidence: float
    probabilities: list[ChoiceProbability]


class ScoreProbability(msgspec.Struct):
    """The probability of a level; ``value`` is its number, from 0."""

    value: int
    label: str
    probability: float


class ScoreAnswer(msgspec.Struct, tag_field="type", tag="score"):
    """The mean number of a level; ``confidence`` is the probability of the most probable one."""

    name: str | None
    score: float
    confidence: float
    probabilities: list[ScoreProbability]


class Decision(msgspec.Struct):
    """The answers in the order of their questions. The usage counts the prompts of all."""

    answers: list[PredicateAnswer | ChoiceAnswer | ScoreAnswer]
    model: str
    usage: ResponseUsage


async def decisions(call: Call[DecisionRequest]) -> ASGI:
    """Answer questions about an input."""
    body = call.body
    asked = await call.run(asked_of, call.ignored, body)
    lease = await call.lease(body.model)
    with lease as model:
        jobs = await call.run(jobs_of, model, asked)
    found = list[Found]()
    # The first question computes the common beginning of all prompts. A request holds the model
    # only for questions that run: if it held it while others wait, and another model waited for
    # the memory, neither could go on.
    for start in range(1 - AT_ONCE, len(jobs), AT_ONCE):
        part = jobs[max(0, start) : start + AT_ONCE]
        tasks = [asyncio.create_task(found_by(call, *pair)) for pair in part]
        try:
            found += await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
    pairs = zip(body.questions, found, strict=True)
    made = [answer_of(question, one.shares) for question, one in pairs]
    read = sum(one.timings.prompt_tokens for one in found)
    cached = sum(one.timings.cached_tokens for one in found)
    usage = ResponseUsage(read, InputDetails(cached), 0, OutputDetails(0), read)
    return Json(Decision(made, lease.name, usage))


class Found(NamedTuple):
    """The probabilities of a question's options, and what they have cost."""

    shares: list[float]
    timings: Timings


async def found_by(call: Call[DecisionRequest], labels: Sequence[Label], job: ChatJob) -> Found:
    """Ask the model one question."""
    with await call.start(call.body.model, job) as answers:
        tokens, timings = await first_token(answers)
    return Found(shares(labels, tokens), timings)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the model reads it, after the messages of the input."""

    messages: Sequence[dict[str, Any]]
    content: Content
    options: Sequence[str] | None  # None: yes or no
    where: str


def asked_of(ignored: Ignored, body: DecisionRequest) -> list[Asked]:
    """The questions of a request. Raises: ApiError."""
    items = [_without_json(item) for item in items_of(body.input)]
    messages = messages_of(ignored, items)
    made = []
    for number, question in enumerate(body.questions):
        where = f"questions[{number}]"
        given = question.instructions
        if not isinstance(given, str):
            parts = [_plain_part(part) for part in given]
            given = content_of(ignored, parts, f"{where}.instructions")
        made.append(Asked(messages, given, _options(question, where), where))
    return made


def _options(question: Question, where: str) -> list[str] | None:
    """The options of a question, as texts. Raises: ApiError for two of the same value."""
    if isinstance(question, PredicateQuestion):
        return None
    if isinstance(question, ScoreQuestion):
        return [_described(level.label, level.description) for level in question.levels]
    values = [(type(option.value), option.value) for option in question.choices]
    if len(set(values)) < len(values):
        raise ApiError(400, f"{where}.choices has a value twice", f"{where}.choices")
    return [
        _described(
            option.value if isinstance(option.value, str) else json.dumps(option.value),
            option.description,
        )
        for option in question.choices
    ]


def _described(name: str, description: str | None) -> str:
    return f"{name}: {description}" if description else name


def _without_json(item: Mapping[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    if not isinstance(content, list):
        return dict(item)
    return {**item, "content": [_plain_part(part) for part in content]}


def _plain_part(part: Any) -> Any:
    """A part of a content; JSON is a text."""
    if not isinstance(part, dict) or part.get("type") != "input_json":
        return part
    return {"type": "input_text", "text": json.dumps(part.get("data"), ensure_ascii=False)}


@dataclass(frozen=True, slots=True)
class Label:
    """The text with which a response names an option, and its tokens."""

    text: str
    tokens: frozenset[int]  # the text as one token, with and without a space before it


def jobs_of(model: Model, asked: Sequence[Asked]) -> list[tuple[Sequence[Label], ChatJob]]:
    """For each question the labels of its options, and its job. Raises: ApiError."""
    words = [label_of(model, word) for word in _WORDS]
    letters, left = list[Label](), labels_of(model)
    jobs = list[tuple[Sequence[Label], ChatJob]]()
    for one in asked:
        options, labels = one.options, words
        if options is None and not all(label.tokens for label in words):
            options = _WORDS
        if options is not None:
            letters += islice(left, max(0, len(options) - len(letters)))
            labels = letters[: len(options)]
            if len(labels) < len(options):
                raise ApiError(
                    400, f"{one.where} has {len(options)} options; the model's vocabulary has "
                    f"labels for {len(labels)}", one.where,
                )  # fmt: skip
        jobs.append((labels, job_of(one, options, labels)))
    return jobs


def labels_of(model: Model) -> Iterator[Label]:
    """The labels A to Z, AA, AB, ... that are tokens of the model."""
    for letters in (*product(ascii_uppercase), *product(ascii_uppercase, repeat=2)):
        label = label_of(model, "".join(letters))
        if label.tokens:
            yield label


def label_of(model: Model, text: str) -> Label:
    """The label of a text; it has no tokens if no single token is the text."""
    ends = (model.tokenize(before + text, add_bos=False)[-1:] for before in ("", " ", "\n"))
    tokens = {ids[0] for ids in ends if ids and model.detokenize(ids).strip() == text}
    return Label(text, frozenset(tokens))


def job_of(asked: Asked, options: Sequence[str] | None, labels: Sequence[Label]) -> ChatJob:
    """The job that asks for the label of an option. ``options`` None: the labels are the options.

    The response continues an empty one, so that models are refused that always reason first.
    """
    if options is None:
        head: Content = "\nIs this true of the text above?"
        tail = f"Answer with one word: {' or '.join(label.text for label in labels)}."
    else:
        head = "\nQuestion:"
        rows = (f"{label.text}: {text}" for label, text in zip(labels, options, strict=True))
        tail = "\n".join((*rows, "Answer with the letter of one option only."))
    question = together(together(head, asked.content), tail)
    messages = list(asked.messages)
    if messages and messages[-1]["role"] == "user":
        last = messages.pop()
        question = together(last["content"], question)
    tokens = frozenset[int]().union(*(label.tokens for label in labels))
    bias = dict.fromkeys(tokens, _BIAS)
    return ChatJob(
        [*messages, {"role": "user", "content": question}, {"role": "assistant", "content": ""}],
        {**_PLAIN, "logit_bias": bias, "logprobs": len(tokens)},
        whole=True, effort=NONE, effort_param="questions", continues=True,
    )  # fmt: skip


async def first_token(answers: Answers) -> tuple[Sequence[TokenLogprob], Timings]:
    """The most probable first tokens of a response, and its cost."""
    tokens: Sequence[TokenLogprob] = ()
    async for event in answers:
        if isinstance(event, End):
            return tokens, event.timings
        for token in event.logprobs:
            tokens = token.top
    raise AssertionError("a response has an end")


def shares(labels: Sequence[Label], tokens: Sequence[TokenLogprob]) -> list[float]:
    """The probability of each label; together they are 1."""
    found = {token.token_id: math.exp(token.logprob) for token in tokens}
    sums = [sum(found.get(token, 0.0) for token in label.tokens) for label in labels]
    whole = sum(sums)
    return [one / whole for one in sums]


def answer_of(
    question: Question, found: Sequence[float]
) -> PredicateAnswer | ChoiceAnswer | ScoreAnswer:
    """The answer to a question, of the probabilities of its options."""
    if isinstance(question, PredicateQuestion):
        return PredicateAnswer(question.name, found[0])
    most = max(range(len(found)), key=found.__getitem__)
    if isinstance(question, ChoiceQuestion):
        values = [option.value for option in question.choices]
        rows = [ChoiceProbability(*pair) for pair in zip(values, found, strict=True)]
        return ChoiceAnswer(question.name, values[most], found[most], rows)
    levels = [
        ScoreProbability(number, level.label, share)
        for number, (level, share) in enumerate(zip(question.levels, found, strict=True))
    ]
    mean = sum(level.value * level.probability for level in levels)
    return ScoreAnswer(question.name, mean, found[most], levels)


ENDPOINTS = tuple(
    Endpoint(
        "POST", path, decisions, "Answers with probabilities to questions about an input.",
        body=DecisionRequest, answer=Decision, generates=True,
    )
    for path in ("/v1/decisions", "/decisions")
)  # fmt: skip
