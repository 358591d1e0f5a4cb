"""From a job to prompts, options and readers of the answers: where a model's own forms are known.

Tools and reasoning come in here: the prompt, what the options add (a grammar that forces a call),
and the reader that finds a model's marks in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trinity.conversation.parts import Part, Text
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob, TextJob
from trinity.server.thinking import effort_variables

if TYPE_CHECKING:
    from trinity.model import Model

# For models whose files have no chat template, as llama.cpp's server has it.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Reader(Protocol):
    """Finds the parts of one answer in its text, piece by piece."""

    called: bool  # whether the answer has a call of a tool

    def push(self, text: str) -> Sequence[Part]:
        """The parts that are certain after ``text``."""
        ...

    def finish(self) -> Sequence[Part]:
        """What was held back, once no more text comes."""
        ...


class PlainReader:
    """Every text is the answer's own."""

    called = False

    def push(self, text: str) -> Sequence[Part]:
        """The text."""
        return (Text(text),)

    def finish(self) -> Sequence[Part]:
        """Nothing is held back."""
        return ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is submitted, and what makes a reader for each answer."""

    prompts: Sequence[str | Sequence[int]]
    options: Mapping[str, Any]
    reader: Callable[[], Reader] = PlainReader


def prepared(model: Model, job: ChatJob | TextJob) -> Prepared:
    """A job's prompts, options and readers; it takes its time, so not in the event loop."""
    if isinstance(job, TextJob):
        return Prepared(job.prompts, job.options)
    _check(model, job)
    ids = model.apply_chat_template(job.messages, template=_template(model))
    return Prepared([ids], job.options)


def prompt_text(model: Model, job: ChatJob) -> str:
    """A conversation as the model reads it."""
    _check(model, job)
    return model.chat_text(job.messages, template=_template(model))


def _template(model: Model) -> str | None:
    return None if model.chat_templates else CHATML


def variables_of(model: Model, job: ChatJob) -> dict[str, Any]:
    """Names for the chat template: those of the effort, and those that were given."""
    template = "\n".join(one.text for one in model.chat_templates) or CHATML
    return {**effort_variables(job.effort, job.effort_param, template), **job.variables}


def _check(model: Model, job: ChatJob) -> None:
    variables = variables_of(model, job)
    if variables:
        raise ApiError(400, "the chat template takes no variables yet", min(variables))
    if job.tools:
        raise ApiError(400, "tools cannot be called yet", "tools")
    if job.reasoning_budget is not None:
        raise ApiError(400, "the length of reasoning cannot be limited yet", "reasoning_budget")
