"""Reasoning that ends when a client asks for it, or after a number of tokens, with a message.

These are llama.cpp's reasoning_control and reasoning_budget_message.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt
    from trinity.runtime.sampling.guide import Allowed, Grammar, Guide
    from trinity.tokenizers import Tokenizer


class ReasoningControl:
    """A grammar whose responses end their reasoning when ``end`` is called.

    They also end it after ``budget`` tokens; None: no limit. ``message`` is the last text of
    reasoning that ended so. Otherwise the responses are those of ``grammar``; None: any text.
    """

    def __init__(
        self, prompt: ChatPrompt, grammar: Grammar | None, budget: int | None = None,
        message: str = "",
    ) -> None:  # fmt: skip
        thinking = prompt.form.thinking
        self.marks = thinking.begin.strip().encode(), thinking.end.strip().encode()
        self.inside = prompt.form.inside
        # After the end of reasoning, a grammar itself forces what must follow it.
        end = thinking.end if grammar else thinking.end + thinking.then
        end_ids = prompt.tokenizer.encode(end, add_bos=False, parse_special=True)
        said = prompt.tokenizer.encode(message, add_bos=False) if message else []
        self.end_ids = said + end_ids
        self.budget = math.inf if budget is None else budget
        self._is_one_token = len(end_ids) == 1
        self._grammar = grammar
        self._guides: list[ControlledGuide] = []

    @property
    def possible(self) -> bool:
        """Whether the end of reasoning can be forced: a grammar must know it as one token."""
        return self._grammar is None or self._is_one_token

    def guide(self, tokenizer: Tokenizer, vocab_size: int) -> ControlledGuide:
        """Return the guide of one response; see ``runtime.sampling.guide.Grammar``."""
        inner = None if self._grammar is None else self._grammar.guide(tokenizer, vocab_size)
        made = ControlledGuide(self, inner, tokenizer, vocab_size)
        self._guides.append(made)
        return made

    def end(self) -> None:
        """End the reasoning of every response that is in it; any thread may call this."""
        for guide in self._guides:
            guide.ending = True


class ControlledGuide:
    """A ``Guide`` that forces the end of reasoning after ``ending`` was set or the budget is used.

    It then waits for the end of a character. A response that does not reason stays as it is.
    """

    def __init__(
        self,
        control: ReasoningControl,
        inner: Guide | None,
        tokenizer: Tokenizer,
        vocab_size: int,
    ) -> None:
        self.ending = False
        self._inner = inner
        self._begin, self._end = control.marks
        self._end_ids = control.end_ids
        self._inside = control.inside
        self._budget, self._count = control.budget, 0  # tokens of this reasoning
        self._bytes_of = tokenizer.bytes_of
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = b""  # in which the next mark may have begun
        self._vocab_size = vocab_size

    @property
    def complete(self) -> bool:
        """Whether the text is complete and nothing may follow."""
        return self._inner is not None and self._inner.complete

    def allowed(self) -> Allowed:
        """Return which tokens may come next."""
        return np.ones(self._vocab_size, np.bool_) if self._inner is None else self._inner.allowed()

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by ``tokens``."""
        if self._inner is not None:
            self._inner.accept(tokens)
        for token in tokens:
            data = self._bytes_of(token)
            self._utf8.decode(data)
            self._count += 1
            self._look(data)

    def forced(self) -> list[int]:
        """Return the next tokens if there is no choice."""
        if not self._inside:
            self.ending = False
        elif self._count >= self._budget:
            self.ending = True
        if self.ending and not self._utf8.getstate()[0]:
            if self._inner is None:
                return self._end_ids
            if not self._inner.complete and self._inner.allowed()[self._end_ids[0]]:
                return self._end_ids
        return [] if self._inner is None else self._inner.forced()

    def fitting(self, tokens: Sequence[int]) -> int:
        """Return how many of ``tokens`` are allowed in order, with no forced token between."""
        return len(tokens) if self._inner is None else self._inner.fitting(tokens)

    def _look(self, data: bytes) -> None:
        """Search the newest bytes for the marks of reasoning."""
        text = self._tail + data
        while True:
            mark = self._end if self._inside else self._begin
            _, found, after = text.partition(mark)
            if not found:
                break
            text, self._inside, self._count = after, not self._inside, 0
        self._tail = text[1 - len(mark) :] if len(mark) > 1 else b""
