"""Options of a conversation: how it becomes a prompt, and how the response is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from trinity.formats.defaults import ChatTemplate
from trinity.runtime.options import GenerationOptions


class PromptOptions(TypedDict, total=False):
    """How a conversation becomes a prompt."""

    template: str | ChatTemplate | None
    """Replaces the chat template of the model's file."""
    tools: Sequence[Mapping[str, Any]] | None
    """Tools that may be called, in the form of OpenAI's API."""
    variables: Mapping[str, object] | None
    """Further variables of the template, such as enable_thinking."""


class ChatOptions(PromptOptions, GenerationOptions, total=False):
    """All options of a chat."""


def split_options(options: ChatOptions) -> tuple[PromptOptions, GenerationOptions]:
    """The options of the prompt, and those of the generation."""
    of_prompt = PromptOptions.__annotations__.keys()
    prompt = {name: value for name, value in options.items() if name in of_prompt}
    rest = {name: value for name, value in options.items() if name not in of_prompt}
    return cast(PromptOptions, prompt), cast(GenerationOptions, rest)
