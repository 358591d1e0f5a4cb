"""A conversation as the tokens of a prompt, and how its responses are parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trinity.conversation.form import Form, form_of
from trinity.conversation.parallel import allows_parallel
from trinity.conversation.reading import Reader
from trinity.conversation.rendering import Rendered
from trinity.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt, and the form of its responses."""

    ids: list[int]  # tokens of ``text``
    text: str  # what the chat template rendered
    form: Form
    skip_special: bool  # for generation: False if the form's delimiters are special tokens
    tokenizer: Tokenizer

    def continued(self, text: str) -> ChatPrompt:
        """Return the prompt followed by the beginning of the response, to be continued."""
        whole, thinking = self.text + text, self.form.thinking
        inside = (self.form.inside and thinking.end not in text) or thinking.is_open(whole)
        form = replace(self.form, inside=inside)
        return replace(self, ids=rendered_ids(whole, self.tokenizer), text=whole, form=form)

    def reader(self) -> Reader:
        """Return a parser for one response."""
        return self.form.reader()

    def grammar(self, answer: str | None = None, budget: int | None = None) -> str | None:
        """Return the Lark grammar of a response; see Form.grammar."""
        return self.form.grammar(self.mark, answer, budget)

    def mark(self, text: str) -> str | int:
        """Return a delimiter as the one token that it is, or as its text."""
        found = token_of(text, self.tokenizer)
        return text if found is None else found


def prompt_of(
    rendered: Rendered,
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str,
    parallel: bool | None,
) -> ChatPrompt:
    """Return the prompt of a rendered conversation.

    ``parallel``: whether a response may have several calls; None follows the template. Raises
    InputError for malformed tools and a choice that cannot be satisfied.
    """
    form = form_of(
        rendered.template.text,
        tools=tools,
        tool_choice=tool_choice,
        parallel=bool(tools) and allows_parallel(rendered.template, parallel, tool_choice),
        prompt=rendered.text,
        dialect=rendered.dialect,
    )
    ids = rendered_ids(rendered.text, tokenizer)
    return ChatPrompt(ids, rendered.text, form, not hides(form, tokenizer), tokenizer)


def rendered_ids(text: str, tokenizer: Tokenizer) -> list[int]:
    """Tokenize rendered text, which may already contain the BOS token."""
    bos = "" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id)
    wrote_bos = bos != "" and text.startswith(bos)
    return tokenizer.encode(text, add_bos=not wrote_bos, parse_special=True)


def token_of(mark: str, tokenizer: Tokenizer) -> int | None:
    """Return the token of ``mark`` if it is one token."""
    ids = tokenizer.encode(mark, add_bos=False, parse_special=True)
    return ids[0] if len(ids) == 1 and tokenizer.token_text(ids[0]) == mark else None


def hides(form: Form, tokenizer: Tokenizer) -> bool:
    """Whether text without special tokens lacks some of the form's delimiters."""
    tokens = (token_of(mark, tokenizer) for mark in form.marks)
    return any(tokenizer.is_special(token) for token in tokens if token is not None)
