"""Render a conversation with a Go template; the counterpart of Jinja's render_chat."""

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
    """Render a conversation with a Go template; other ``names`` have no effect.

    ``enable_thinking`` becomes .Think. Raises as GoTemplate and its ``render``; InputError without
    ``add_generation_prompt``, because Ollama's templates end where the response starts.
    """
    if not add_generation_prompt:
        raise InputError(
            "a Go template always ends where the assistant's response starts; set "
            "add_generation_prompt to True, or pass a Jinja template"
        )
    return _parsed(template).render(messages, tools=tools, think=enable_thinking)


@lru_cache(maxsize=8)
def _parsed(template: str) -> GoTemplate:
    return GoTemplate(template)
