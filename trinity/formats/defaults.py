"""Defaults in a model's files; they override the engine's, and a request's override them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Message = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A chat template: a program that turns messages into the text of a prompt."""

    text: str
    # "jinja": Jinja2 with the names that transformers defines; "go": Go's text/template with
    # Ollama's
    language: Literal["jinja", "go"] = "jinja"
    source: str = "the model's file"  # the place of the text, for errors


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults that come with a model."""

    # The first template that can be rendered is used; these override the one in the vocabulary's
    # metadata.
    templates: tuple[ChatTemplate, ...] = ()
    system: str | None = None  # the system message of conversations that begin without one
    messages: tuple[Message, ...] = ()  # placed before a request's messages
    # names of ``GenerationOptions``; a request's own options override them
    options: Mapping[str, object] = field(default_factory=dict)
    # names of ``LoadOptions``; options that are given override them
    loading: Mapping[str, object] = field(default_factory=dict)
    # tokens that end a response, in addition to those in the vocabulary's metadata
    end_ids: tuple[int, ...] = ()
    source: str = ""  # the place of the options, for errors

    def opened(self, messages: Sequence[Message]) -> list[Message]:
        """Return the whole conversation for the ``messages`` of a request.

        The system text comes first, unless the request begins with a system message. Source of the
        order: Ollama, server/routes.go, ChatHandler.
        """
        conversation = [*self.messages, *messages]
        if self.system and messages[0].get("role") != "system":
            conversation.insert(0, {"role": "system", "content": self.system})
        return conversation


NO_DEFAULTS = Defaults()
