"""Keeps the mark of an image apart that a user wrote as text."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trinity.conversation.prompt import rendered_ids

if TYPE_CHECKING:
    from trinity.conversation.messages import Message
    from trinity.tokenizers import Tokenizer


class WrittenMarks:
    """Replaces ``mark`` in texts of messages by a random word, and that word in tokens.

    Otherwise the rendered text would not tell where its images are.
    """

    def __init__(self, mark: str, tokenizer: Tokenizer) -> None:
        self._mark, self._tokenizer = mark, tokenizer
        self._word = secrets.token_hex(16)

    def guarded(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages without the mark in their texts."""
        guarded: list[Message] = self._guarded(list(messages))
        return guarded

    def ids(self, text: str, is_first: bool) -> list[int]:
        """Return the tokens of a part of rendered text. The mark that a user wrote is plain text.

        The first part of a text begins with BOS, as ``rendered_ids`` puts it.
        """
        first, *rest = text.split(self._word)
        if is_first:
            ids = rendered_ids(first, self._tokenizer)
        else:
            ids = self._tokenizer.encode(first, add_bos=False, parse_special=True)
        for part in rest:
            ids += self._tokenizer.encode(self._mark, add_bos=False, parse_special=False)
            ids += self._tokenizer.encode(part, add_bos=False, parse_special=True)
        return ids

    def _guarded(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(self._mark, self._word)
        if isinstance(value, Mapping):
            return {key: self._guarded(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guarded(item) for item in value]
        return value
