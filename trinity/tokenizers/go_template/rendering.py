"""Go templates in the place of Jinja's: the function that chats call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from trinity.errors import InputError
from trinity.tokenizers.go_template.template import GoTemplate


def render_go(
    template: str,
    messages: Sequence[Mapping[str, object]],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, object]] | None = None,
    enable_thinking: bool | None = None,
    **names: object,
) -> str:
    """The text of a conversation by a Go template, to which other ``names`` mean nothing.

    ``enable_thinking`` is what it knows as .Think.

    Raises: as GoTemplate and its ``render``; InputError without ``add_generation_prompt``, because
    Ollama's templates end where the answer starts.
    """
    if not add_generation_prompt:
        raise InputError(
            "a Go template always ends where the assistant's answer starts; leave "
            "add_generation_prompt True, or pass a Jinja template"
        )
    return _parsed(template).render(messages, tools=tools, think=enable_thinking)


@lru_cache(maxsize=8)
def _parsed(template: str) -> GoTemplate:
    return GoTemplate(template)
