"""A conversation as the tokens of a prompt, and how answers to it are read."""

from __future__ import annotations

from dataclasses import dataclass

from trinity.conversation.form import Form
from trinity.conversation.reader import Reader
from trinity.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt, and the form of the answers to it.

    ``ids`` are its tokens, ``text`` what the chat template made. ``skip_special`` is what the
    generation needs: False where the form's marks are special tokens.
    """

    ids: list[int]
    text: str
    form: Form
    skip_special: bool
    tokenizer: Tokenizer

    def reader(self) -> Reader:
        """A reader for one answer."""
        return self.form.reader()

    def grammar(self, answer: str | None = None, budget: int | None = None) -> str | None:
        """The Lark grammar that an answer needs; see Form.grammar."""
        return self.form.grammar(self.mark, answer, budget)

    def mark(self, text: str) -> str | int:
        """A mark as the one token that it is, or as its text."""
        found = token_of(text, self.tokenizer)
        return text if found is None else found


def token_of(mark: str, tokenizer: Tokenizer) -> int | None:
    """The token that is ``mark``, if it is one."""
    ids = tokenizer.encode(mark, add_bos=False, parse_special=True)
    return ids[0] if len(ids) == 1 and tokenizer.token_text(ids[0]) == mark else None


def hides(form: Form, tokenizer: Tokenizer) -> bool:
    """Whether an answer without special tokens lacks some of the form's marks."""
    tokens = (token_of(mark, tokenizer) for mark in form.marks)
    return any(tokenizer.is_special(token) for token in tokens if token is not None)
