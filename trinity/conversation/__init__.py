"""Conversations as APIs have them: messages, tools, reasoning, and what models write of them."""

from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text
from trinity.conversation.prompt import Form, form_of, parse
from trinity.conversation.reading import Reader

__all__ = [
    "CallArguments", "CallStart", "Form", "Part", "Reader", "Reasoning", "Text", "form_of", "parse",
]  # fmt: skip
