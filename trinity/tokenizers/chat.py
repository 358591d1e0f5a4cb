"""Chat templates: a conversation to the text that a model was trained on.

A model file's template is an untrusted program. Jinja2's sandbox compiles and renders it in a
confined process (`trinity.processes.confined`) without files and network, with limited time and
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from trinity.errors import ConfinedError, ConfinedUnavailableError, TokenizerError, UnsupportedError
from trinity.formats.defaults import ChatTemplate
from trinity.processes import json_parts
from trinity.processes.confined import Confined
from trinity.tokenizers.go_template.rendering import render_go

T = TypeVar("T")
LONGEST_TEMPLATE = 1 << 17  # characters; the longest in use have some 30,000


class RefusedHistoryError(TokenizerError):
    """A template rejects these messages or fails; it may accept them in another form."""


_OTHERWISE = "pass another template, or write the prompt in the model's own format"
# Real templates take 3 to 70 ms to compile and most of them 1 to 20 ms for 400 messages; one takes
# 2.2 microseconds times the square of their number.
# The second process serves short conversations while the first one renders a long one.
_RENDERER = Confined(
    "trinity.processes.template_sandbox",
    memory_bytes=160_000_000,
    seconds=1.0,
    reply_bytes=1 << 21,
    processes=2,
)
_SECONDS_PER_MESSAGE = 0.005
# The text is tokenized next, with a few microseconds and some 200 bytes per character.
_LONGEST_TEXT = 1 << 17  # characters, beyond a multiple of the conversation's
_TEXT_PER_CHARACTER = 4
_LONGEST_SHOWN = 500  # characters of a template's words in an error


def first_known(templates: Sequence[ChatTemplate], use: Callable[[ChatTemplate], T]) -> T:
    """Return the result of ``use`` for the first template that trinity supports.

    Raises UnsupportedError if there is none.
    """
    refusals = []
    for template in templates:
        try:
            return use(template)
        except UnsupportedError as error:
            refusals.append(f"{template.source}: {error}")
    raise UnsupportedError(f"no chat template can be rendered: {'; '.join(refusals)}; {_OTHERWISE}")


def render(template: ChatTemplate, messages: Sequence[Mapping[str, object]], **names: Any) -> str:
    """As ``render_chat``; raises UnsupportedError for unsupported features of Go templates."""
    return _RENDERERS[template.language](template.text, messages, **names)


def render_listing(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]] | None,
    **names: Any,
) -> str:
    """As ``render``, for templates that need an empty list of tools, or complete tools, too.

    OpenAI's tools may lack a description and parameters.
    """
    try:
        return render(template, messages, tools=tools or None, **names)
    except RefusedHistoryError as error:
        complete = [_completed(tool) for tool in tools or ()]
        if complete and complete == tools:
            raise
        try:
            return render(template, messages, tools=complete, **names)
        except TokenizerError:
            raise error from None


def _completed(tool: Mapping[str, object]) -> dict[str, object]:
    """Return a tool with an empty description and without parameters where it has none."""
    function = tool["function"]
    assert isinstance(function, Mapping)
    given = {key: value for key, value in function.items() if value is not None}
    empty = {"name": None, "description": "", "parameters": {"type": "object", "properties": {}}}
    return {**tool, "function": {**empty, **given}}


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    bos_token: str = "",
    eos_token: str = "",
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, object]] | None = None,
    **variables: object,
) -> str:
    """Return the text of a conversation in the model's format.

    ``messages`` are mappings with "role" and "content". Most templates write ``bos_token``
    themselves: encode the result with ``parse_special=True``, which does not add a second one. With
    ``add_generation_prompt`` the text ends where the assistant's response starts. ``variables`` are
    other names that the template may use. All values must be JSON values; the template gets a tuple
    as a list.

    Raises TokenizerError for a template that is broken, rejects the messages, fails, takes more
    than a second of processor time (plus 5 ms per message) or too much memory, or writes too much
    text; InputError for a value that JSON cannot hold.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise TokenizerError(
            f"the chat template has {len(template)} characters; at most {LONGEST_TEMPLATE} are"
            f" compiled; {_OTHERWISE}"
        )
    names: dict[str, object] = {
        **variables,
        "messages": [dict(message) for message in messages],
        "tools": None if tools is None else [dict(tool) for tool in tools],
        "bos_token": bos_token,
        "eos_token": eos_token,
        "add_generation_prompt": add_generation_prompt,
    }
    more_seconds = _SECONDS_PER_MESSAGE * len(messages)
    try:
        answer: dict[str, Any] = _RENDERER.call({**names, "": template}, more_seconds=more_seconds)
    except ConfinedUnavailableError:
        raise
    except ConfinedError as error:
        raise TokenizerError(
            f"the chat template was stopped: {error.reason}; {_OTHERWISE}"
        ) from error
    ((outcome, what),) = answer.items()
    if outcome == "text":
        _check_length(what, names)
        return str(what)
    if outcome == "refused":
        raise RefusedHistoryError(f"the chat template refuses these messages: {_printable(what)}")
    if outcome == "invalid":
        line, message = what
        raise TokenizerError(
            f"the chat template is broken at line {line}: {_printable(message).rstrip('.')}; "
            f"{_OTHERWISE}"
        )
    if outcome == "failed":
        raise RefusedHistoryError(f"the chat template failed: {_printable(what)}; {_OTHERWISE}")
    raise TokenizerError(f"the chat template cannot be compiled: {_printable(what)}; {_OTHERWISE}")


# By the language of a template; unsupported features raise UnsupportedError.
_RENDERERS: dict[str, Callable[..., str]] = {"jinja": render_chat, "go": render_go}


def _check_length(text: str, names: object) -> None:
    if len(text) > _LONGEST_TEXT:
        length = len(json_parts.dumps(names, ensure_ascii=False))
        longest = _LONGEST_TEXT + _TEXT_PER_CHARACTER * length
        if len(text) > longest:
            raise TokenizerError(
                f"the chat template renders these messages to {len(text)} characters; at most "
                f"{longest} are allowed; {_OTHERWISE}"
            )


def _printable(text: str) -> str:
    """Return the start of a template's message, without control characters."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown if len(shown) <= _LONGEST_SHOWN else shown[: _LONGEST_SHOWN - 3] + "..."
