"""Chat templates: a conversation to the text that a model was trained on.

A model file's template is a stranger's program: it runs in Jinja2's sandbox, without a loader,
and with bounded time and memory.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from trinity.errors import TokenizerError
from trinity.tokenizers.template_budget import CURRENT, Budget, TemplateLimitError
from trinity.tokenizers.template_sandbox import ChatEnvironment, RefusedMessagesError

LONGEST_TEMPLATE = 1 << 17  # characters; the longest in use have some 30,000

_OTHERWISE = "pass another template, or write the prompt in the model's own format"


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
    """The text of a conversation in the model's format.

    ``messages`` are mappings with "role" and "content". Most templates write ``bos_token``
    themselves: encode the result with ``parse_special=True``, which adds no second one. With
    ``add_generation_prompt`` the text ends where the assistant's answer starts. ``variables`` are
    further names that the template may use.

    Raises TokenizerError for a template that is broken, refuses the messages, fails, or takes
    more than a few seconds of processor time or too much memory.
    """
    names = {
        **variables,
        "messages": [dict(message) for message in messages],
        "tools": None if tools is None else [dict(tool) for tool in tools],
        "bos_token": bos_token,
        "eos_token": eos_token,
        "add_generation_prompt": add_generation_prompt,
    }
    compiled = _compiled(template)
    try:
        token = CURRENT.set(Budget.of(names))
        try:
            return compiled.render(names)
        finally:
            CURRENT.reset(token)
    except RefusedMessagesError as error:
        raise TokenizerError(f"the chat template refuses these messages: {error}") from error
    except TemplateLimitError as error:
        raise TokenizerError(f"the chat template was stopped: {error}; {_OTHERWISE}") from error
    except Exception as error:  # a template can raise anything
        raise TokenizerError(
            f"the chat template failed: {type(error).__name__}: {str(error)[:500]}; {_OTHERWISE}"
        ) from error


@functools.cache
def _environment() -> ChatEnvironment:
    return ChatEnvironment()


@functools.lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    if len(template) > LONGEST_TEMPLATE:
        raise TokenizerError(
            f"the chat template has {len(template)} characters; at most {LONGEST_TEMPLATE} are"
            f" compiled; {_OTHERWISE}"
        )
    try:
        return _environment().from_string(template)
    except TemplateSyntaxError as error:
        raise TokenizerError(
            f"the chat template is broken at line {error.lineno}: {error.message}; {_OTHERWISE}"
        ) from error
    except Exception as error:  # too deeply nested, too large a number, ...
        raise TokenizerError(
            f"the chat template cannot be compiled: {type(error).__name__}: {str(error)[:500]};"
            f" {_OTHERWISE}"
        ) from error
