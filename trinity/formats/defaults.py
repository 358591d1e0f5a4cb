"""What a model's files say of its use, between the engine's defaults and a request's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Message = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A program that makes the text of a prompt from messages.

    ``language``: "jinja" is Jinja2 with the names that transformers has, "go" Go's text/template
    with those of Ollama. ``source`` says where it stands, for errors.
    """

    text: str
    language: Literal["jinja", "go"] = "jinja"
    source: str = "the model's file"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults that come with a model.

    ``templates`` go before the Jinja template of the vocabulary's metadata, the first that can be
    rendered wins. ``system`` is the text of a system message for conversations that begin with
    none; ``messages`` come before those of a request. ``options`` has the names of
    ``GenerationOptions``, ``loading`` those of ``LoadOptions``; a request's own go before them.
    ``end_ids``: tokens that end an answer beside those that the vocabulary's metadata names.
    ``source``: where the options stand, for errors.
    """

    templates: tuple[ChatTemplate, ...] = ()
    system: str | None = None
    messages: tuple[Message, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    loading: Mapping[str, object] = field(default_factory=dict)
    end_ids: tuple[int, ...] = ()
    source: str = ""

    def opened(self, messages: Sequence[Message]) -> list[Message]:
        """The whole conversation, of which ``messages`` are what was given.

        The system text goes before everything, unless what was given begins with a system message.
        Source of the order: Ollama, server/routes.go, ChatHandler.
        """
        conversation = [*self.messages, *messages]
        if self.system and messages[0].get("role") != "system":
            conversation.insert(0, {"role": "system", "content": self.system})
        return conversation


NO_DEFAULTS = Defaults()
