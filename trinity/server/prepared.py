"""Prepare a job for the model: prompt, options and reader.

The conversation becomes the model's prompt, forced calls and response formats become a grammar, and
a reader finds reasoning and tool calls in the text.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trinity.conversation.parts import Part, Text
from trinity.conversation.rendering import has_variable
from trinity.errors import ContextLengthError, InputError
from trinity.formats.defaults import ChatTemplate
from trinity.grammar.grammar import Grammar
from trinity.grammar.trial import only_known
from trinity.runtime.image_rows import after
from trinity.runtime.options import Request
from trinity.runtime.prompts import checked_ids, prompt_ids
from trinity.server.errors import ApiError
from trinity.server.fitting import cut_ids, cut_prompt
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob, TextJob
from trinity.server.thinking import can_think, effort_variables
from trinity.server.threads import NotFetchedError

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt
    from trinity.model import Model
    from trinity.server.reasoning_control import ReasoningControl

_MOST_URLS = 16  # of a request's images
# For models whose files have no chat template, as in llama.cpp's server.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class AnswerReader(Protocol):
    """Finds the parts of one response in its text as it arrives."""

    @property
    def called(self) -> bool:
        """Whether the response has a tool call."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the response needs no more text."""
        ...

    def push(self, text: str) -> Sequence[Part]:
        """The parts that are certain after ``text``."""
        ...

    def finish(self) -> Sequence[Part]:
        """The remaining parts, once no more text comes."""
        ...


class PlainReader:
    """Reads text without reasoning and tool calls."""

    called = complete = False

    def push(self, text: str) -> Sequence[Part]:
        """The text."""
        return (Text(text),)

    def finish(self) -> Sequence[Part]:
        """No text is left, because ``push`` returns all of it."""
        return ()


class PromptSettings(NamedTuple):
    """The server's settings of prompts."""

    names: Mapping[str, Any]
    """Variables for chat templates that have them."""
    fetched_bytes: int = 0
    """The most bytes of a request's images that are fetched; 0: none are."""
    media_path: str = ""
    """The folder of images that file URLs may name; empty: none may."""
    media_bytes: int = 0
    """The most bytes of a request's images that are read from it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job's prompts, options and reader, ready to be submitted."""

    prompts: Sequence[list[int]]  # token ids
    options: Mapping[str, Any]
    reader: Callable[[], AnswerReader] = PlainReader  # makes a reader for each response
    control: ReasoningControl | None = None  # ends reasoning, if the job allows it


def prepared(
    ignored: Ignored,
    model: Model,
    job: ChatJob | TextJob,
    settings: PromptSettings,
    *,
    fitting: bool = True,
) -> Prepared:
    """Prepare a job. It takes time, so call it in a thread.

    ``settings`` as for ``chat_prompt``. ``fitting``: refuse a prompt that does not fit the context.
    """
    if isinstance(job, TextJob):
        prepare_grammar(model, job.options)
        request = Request.of(**{**model.defaults.options, **job.options})
        prompts = [text_ids(ignored, model, prompt, job, request) for prompt in job.prompts]
        return Prepared(prompts, job.options)
    if job.reasoning_budget is not None and not can_think(template_of(model, job)):
        ignored.add(job.effort_param)
        job = replace(job, reasoning_budget=None)
    check_images(model, job.messages)
    job = replace(job, messages=with_images(job.messages, settings))
    if job.cut_after is None:
        prompt = chat_prompt(ignored, model, job, settings, fitting=fitting)
    else:

        def rendered(messages: Sequence[Mapping[str, Any]]) -> ChatPrompt:
            return chat_prompt(ignored, model, replace(job, messages=messages), settings)

        keep, length = job.cut_after, model.context_length
        prompt = cut_prompt(ignored, rendered, job.messages, length, keep)
    skips = prompt.skip_special and job.options.get("skip_special", True)
    options = {**job.options, "skip_special": skips}
    wanted = options.get("grammar")
    if wanted is not None:
        prompt = replace(prompt, form=replace(prompt.form, formed=True))
    try:
        forced = prompt.form.forced
        # A grammar that ends reasoning says nothing, and knows its end as one token.
        budget = job.reasoning_budget
        controlled = job.reasoning_control or (
            budget is not None
            and (job.budget_message or isinstance(prompt.mark(prompt.form.thinking.end), str))
        )
        budget = None if controlled else budget
        grammar = forced_grammar(prompt, budget) if forced else within(prompt, wanted, budget)
    except InputError as error:  # of the budget, or of tools that are too many
        at = "tools" if prompt.form.tools and budget is None else job.effort_param
        raise ApiError(400, f"{at}: {error}", at) from error
    if grammar is not None:
        options["grammar"] = grammar
    prepare_grammar(model, options)
    control = None
    if controlled:
        control = reasoning_control(ignored, model, job, prompt, grammar)
        if control is not None:
            options["grammar"] = control
    elif job.budget_message:
        ignored.add("reasoning_budget_message")
    return Prepared([prompt.ids], options, prompt.reader, control)


def reasoning_control(
    ignored: Ignored, model: Model, job: ChatJob, prompt: ChatPrompt, grammar: Grammar | None
) -> ReasoningControl | None:
    """What ends the reasoning of the job's responses; None if that is not possible.

    Raises: ApiError if it is not possible and there is a budget.
    """
    from trinity.server.reasoning_control import ReasoningControl  # most requests need none

    control = ReasoningControl(prompt, grammar, job.reasoning_budget, job.budget_message)
    if control.possible and can_think(template_of(model, job)):
        return control
    if job.reasoning_budget is not None:
        raise ApiError(
            400, f"{job.effort_param}: a reasoning budget is not supported by this model for a "
            f"response with a grammar: the end of reasoning, {prompt.form.thinking.end!r}, is not "
            "a single token", job.effort_param,
        )  # fmt: skip
    ignored.add("reasoning_control")
    if job.budget_message:
        ignored.add("reasoning_budget_message")
    return None


def prepare_grammar(model: Model, options: Mapping[str, Any]) -> None:
    """Compile the grammar of the options, if there is one. Raises: as ``Grammar.prepare``."""
    grammar: Grammar | None = options.get("grammar")
    if grammar is not None:
        grammar.prepare(model.tokenizer)


def text_ids(
    ignored: Ignored, model: Model, prompt: str | Sequence[int], job: TextJob, request: Request
) -> list[int]:
    """The tokens of a prompt, read as ``request`` says. Raises: ContextLengthError, ApiError."""
    limit = model.context_length if job.cut_after is None else sys.maxsize
    try:
        ids = prompt_ids(
            prompt, model.tokenizer, model.config.vocab_size, limit,
            add_bos=request.add_bos, parse_special=request.parse_special,
        )  # fmt: skip
    except ContextLengthError:
        raise
    except InputError as error:
        raise ApiError(400, f"prompt: {error}", "prompt") from error
    if job.cut_after is None:
        return ids
    return cut_ids(ignored, ids, model.context_length, job.cut_after, "prompt")


def chat_prompt(
    ignored: Ignored, model: Model, job: ChatJob, settings: PromptSettings, *,
    fitting: bool = False,
) -> ChatPrompt:  # fmt: skip
    """A conversation as the model reads it. Raises: as ``Model.chat_prompt``.

    Variables of the job override those of the settings.
    """
    check_images(model, job.messages)
    messages, begun = with_images(job.messages, settings), ""
    if job.continues:
        messages, begun = messages[:-1], str(messages[-1]["content"])
    prompt = model.chat_prompt(
        messages,
        template=job.template or (None if model.chat_templates else CHATML),
        tools=job.tools,
        tool_choice=job.tool_choice,
        parallel_tool_calls=job.parallel_tool_calls,
        variables=variables_of(ignored, model, job, settings.names),
        add_generation_prompt=job.add_generation_prompt,
        fitting=fitting,
    )
    if job.continues:
        prompt = prompt.continued(begun)
        if prompt.form.inside:
            raise ApiError(
                400, "the model reasons first, and the message to continue "
                f"does not contain its reasoning, up to {prompt.form.thinking.end!r}", "messages",
            )  # fmt: skip
    if job.before:
        before = checked_ids(job.before, model.config.vocab_size)
        begins = len(prompt.ids) > 0 and prompt.ids[0] == model.tokenizer.bos_id
        prompt = replace(prompt, ids=after(before, prompt.ids, skipped=int(begins)))
    return prompt


def check_images(model: Model, messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise ApiError for an image in the messages if the model reads only text."""
    if model.reads_images:
        return
    for number, message in enumerate(messages):
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if part["type"] != "text":
                where = f"messages[{number}].content[{place}]"
                raise ApiError(
                    400, f"{where}: the model reads only text, not images: ask a vision model",
                    where,
                )  # fmt: skip


def with_images(
    messages: Sequence[Mapping[str, Any]], settings: PromptSettings
) -> Sequence[Mapping[str, Any]]:
    """Return messages with the content of URLs, as the settings allow.

    Raises: ApiError if they do not; InputError for what cannot be fetched or read; NotFetchedError
    in a thread that must not wait.
    """
    left, local, count, end = settings.fetched_bytes, settings.media_bytes, 0, 0.0
    made = []
    for message in messages:
        content = message.get("content")
        parts = list(content) if isinstance(content, list) else []
        for place, part in enumerate(parts):
            url = part.get("fetched_url")
            if url is None:
                continue
            where, count = part["where"], count + 1
            is_file = url.startswith("file:")
            if not (settings.media_path if is_file else settings.fetched_bytes):
                option = "--media-path" if is_file else "--allow-image-urls"
                raise ApiError(
                    400,
                    f"{where}: {url!r:.60} is not fetched; send the image itself, as a URL that "
                    f"begins with data:image/png;base64, or start the server with {option}", where,
                )  # fmt: skip
            if count > _MOST_URLS:
                raise ApiError(
                    400, f"{where}: at most {_MOST_URLS} images of a request are fetched", where
                )
            if only_known.get():
                raise NotFetchedError
            if is_file:
                from trinity.images.local_media import read_media

                image = read_media(url, where, settings.media_path, local)
                local -= len(image)
            else:
                from trinity.images.fetching import SECONDS, fetched

                end = end or time.monotonic() + SECONDS
                image = fetched(url, where, left, end)
                left -= len(image)
            parts[place] = {"type": "image", "image": image}
        made.append({**message, "content": parts} if parts else message)
    return made if count else messages


def variables_of(
    ignored: Ignored, model: Model, job: ChatJob, names: Mapping[str, Any]
) -> dict[str, Any]:
    """Variables of the chat template: the server's ``names``, the effort's, the request's.

    Variables of the request that the templates do not have are ignored.
    """
    templates = templates_of(model, job)
    effort = {}
    if job.effort is not None:
        effort = effort_variables(ignored, job.effort, job.effort_param, template_of(model, job))
    known = {**_known(templates, names), **effort, **_known(templates, job.variables)}
    for name in job.variables.keys() - known.keys():
        ignored.add(f"chat_template_kwargs.{name}")
    return known


def _known(templates: Sequence[ChatTemplate], names: Mapping[str, Any]) -> dict[str, Any]:
    """The names that at least one of the templates has."""
    return {
        name: value for name, value in names.items()
        if any(has_variable(template, name) for template in templates)
    }  # fmt: skip


def templates_of(model: Model, job: ChatJob | None = None) -> Sequence[ChatTemplate]:
    """The chat template of the job, else those of the model, else ChatML."""
    if job is not None and job.template is not None:
        return (job.template,)
    return model.chat_templates or (ChatTemplate(CHATML),)


def template_of(model: Model, job: ChatJob | None = None) -> str:
    """The text of ``templates_of``."""
    return "\n".join(template.text for template in templates_of(model, job))


def forced_grammar(prompt: ChatPrompt, budget: int | None) -> Grammar | None:
    """The grammar of a response that must be calls, after ``budget`` tokens of reasoning."""
    text = prompt.grammar(budget=budget)
    return None if text is None else Grammar.lark(text)


def within(prompt: ChatPrompt, grammar: Grammar | None, budget: int | None) -> Grammar | None:
    """The grammar of a response that calls tools or follows ``grammar``.

    Reasoning of at most ``budget`` tokens may precede it.
    """
    if grammar is None:
        text = prompt.grammar(budget=budget)
        return None if text is None else Grammar.lark(text)
    if grammar.kind == "json_schema":
        schema = json.loads(grammar.text)
        schema.pop("x-guidance", None)
        text = prompt.grammar(f"%json {json.dumps(schema)}", budget)
    else:
        text = prompt.grammar(f"%lark {{\n{grammar.text}\n}}", budget)
    # Without reasoning and tools the form alone is faster.
    return grammar if text is None or text.startswith("start: calls\n") else Grammar.lark(text)
