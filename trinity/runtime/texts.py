"""Reads texts and pairs of texts for embedders and rerankers: token ids, cut to the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trinity.errors import ContextLengthError, InputError
from trinity.formats.text_rules import TextRules
from trinity.runtime.prompts import LONG_TEXT, check_ids, check_length, checked_ids

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

# A long text is tokenized until this many tokens follow the last one that is kept: the text after
# them could only change tokens nearer to its cut.
_MARGIN = 256


class Texts(NamedTuple):
    """Token ids of texts, the indices of those that were cut, and the prompt's tokens to omit
    of pooling.
    """

    rows: list[list[int]]
    cut: tuple[int, ...] = ()
    skip: int = 0


class Pairs(NamedTuple):
    """Token ids of each pair, where its text begins if needed, the indices of cut pairs."""

    rows: list[list[int]]
    seconds: list[int | None]
    cut: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TextReader:
    """Tokenizes texts, with the limits of ``context_length`` and ``rules``."""

    tokenizer: Tokenizer
    rules: TextRules
    context_length: int
    vocab_size: int

    @property
    def limit(self) -> int:
        """The maximum number of tokens of a text, with special tokens."""
        return min(self.context_length, self.rules.max_tokens or self.context_length)

    def prompt(self, prompt: str | None, name: str | None) -> str:
        """The text to put before each text: ``prompt``, the one named ``name``, the default one, or
        "".

        Raises: InputError for a name that the model does not have.
        """
        chosen = self.rules.default_prompt if name is None else name
        if prompt is not None or chosen is None:
            return prompt or ""
        if chosen not in self.rules.prompts:
            known = ", ".join(sorted(self.rules.prompts)) or "none"
            raise InputError(f"the model has no prompt {chosen!r:.60}; it has {known}")
        return self.rules.prompts[chosen]

    def texts(
        self, texts: Sequence[str | Sequence[int]], prompt: str = "", *, truncate: bool = True
    ) -> Texts:
        """Token ids of texts; given token ids are only cut.

        Raises: InputError for a text without tokens; ContextLengthError for a text that is longer
        than ``limit``, unless ``truncate`` is set.
        """
        if isinstance(texts, str):
            raise InputError("texts is one text; give a list of texts")
        rows, cut = [], []
        for number, text in enumerate(texts):
            if isinstance(text, str):
                if not truncate:
                    check_length(prompt + text, self.tokenizer, self.limit)
                ids = self._whole(prompt + text)
            elif hasattr(text, "__len__"):
                ids = checked_ids(text, self.vocab_size)
            else:
                raise InputError(
                    f"text {number} is {text!r:.80} ({type(text).__name__}); it must be a text or "
                    "token ids"
                )
            if not ids:
                raise InputError(f"text {number} is empty, so it has no embedding; omit it")
            check_ids(ids, self.vocab_size)
            if len(ids) > self.limit:
                if not truncate:
                    raise self._too_long(f"text {number}", len(ids))
                cut.append(number)
                ids = self._cut(ids, *self._ends)
            rows.append(ids)
        skip = 0 if self.rules.pools_prompt or not prompt else self._prompt_length(prompt)
        return Texts(rows, tuple(cut), skip)

    def pair(self, first: str, second: str, *, truncate: bool) -> tuple[list[int], int, bool]:
        """Token ids of two texts, the index where the second begins, and whether they were cut.

        The longer one is cut. Source: the tokenizers library, utils/truncation.rs, LongestFirst.
        """
        first, second = self._beginning(first), self._beginning(second)
        ids, start = self.tokenizer.encode_pair(first, second)
        if len(ids) <= self.limit:
            return ids, start, False
        if not truncate:
            raise self._too_long("the query with a text", len(ids))
        begin, end = self._ends
        own = len(self.tokenizer.encode(first, add_bos=False, parse_special=True))
        between = start - begin - own
        first_ids, second_ids = ids[begin : start - between], ids[start : len(ids) - end]
        room = max(0, self.limit - begin - between - end)
        short, long = sorted((len(first_ids), len(second_ids)))
        long = short if short > room else max(short, room - short)
        if short + long > room:
            short, long = room // 2, room // 2 + room % 2
        counts = (short, long) if len(first_ids) <= len(second_ids) else (long, short)
        head = [*ids[:begin], *first_ids[: counts[0]], *ids[start - between : start]]
        return [*head, *second_ids[: counts[1]], *ids[len(ids) - end :]], len(head), True

    def prompted_pair(self, whole: str, end: str, *, truncate: bool) -> tuple[list[int], bool]:
        """Token ids of a query and a text in a prompt that ends with ``end``, which is not cut."""
        ids = self.tokenizer.encode(self._beginning(whole, end), add_bos=False, parse_special=True)
        if len(ids) <= self.limit:
            return ids, False
        if not truncate:
            raise self._too_long("the query with a text", len(ids))
        last = self.tokenizer.encode(end, add_bos=False, parse_special=True, continuation=True)
        return [*ids[: max(0, self.limit - len(last))], *last][: self.limit], True

    @property
    def _ends(self) -> tuple[int, int]:
        """The number of special tokens before and after a text."""
        tokenizer = self.tokenizer
        return (
            int(tokenizer.add_bos and tokenizer.bos_id is not None),
            int(tokenizer.add_eos and tokenizer.eos_id is not None),
        )

    def _cut(self, ids: list[int], begin: int, end: int) -> list[int]:
        """Cut ids to ``limit`` tokens and keep the special tokens at both ends."""
        tokenizer, room = self.tokenizer, self.limit - begin - end
        if room <= 0 or ids[:begin] != [tokenizer.bos_id][:begin]:
            begin, room = 0, self.limit - end
        if room <= 0 or ids[len(ids) - end :] != [tokenizer.eos_id][:end]:
            end, room = 0, self.limit - begin
        inner = ids[begin : len(ids) - end]
        inner = inner[len(inner) - room :] if self.rules.cuts_left else inner[:room]
        return [*ids[:begin], *inner, *ids[len(ids) - end :]]

    def _whole(self, text: str) -> list[int]:
        return self.tokenizer.encode_whole(self._beginning(text))

    def _beginning(self, text: str, end: str = "") -> str:
        """Return the beginning of a long text that has more than ``limit`` tokens, and ``end``.

        A text that is not longer is returned as it is.
        """
        size = max(LONG_TEXT, 16 * self.limit)
        while size < len(text) and not self.rules.cuts_left:
            part = text[:size]
            if len(self.tokenizer.encode(part, parse_special=True)) > self.limit + _MARGIN:
                return part + end
            size *= 4
        return text

    def _prompt_length(self, prompt: str) -> int:
        """The number of tokens of a prompt at the beginning of a text.

        Source: sentence_transformers base/modules/transformer.py, _get_prompt_length.
        """
        ids = self.tokenizer.encode_whole(prompt)
        return len(ids) - (1 if self._ends[1] else 0)

    def _too_long(self, what: str, length: int) -> ContextLengthError:
        if self.limit < self.context_length:
            hint = f"the model takes {self.limit} of a text"
        else:
            hint = (
                f"the context holds {self.limit}: load the model with a larger context_length "
                "(--ctx) if it supports one"
            )
        return ContextLengthError(
            f"{what} has {length} tokens, but {hint}; shorten the texts, or truncate them "
            "(truncate=True)",
            length,
            self.limit,
        )


def cut_notice(cut: Sequence[int], count: int, limit: int, *, larger: bool) -> str:
    """The warning that the texts ``cut``, of ``count``, were longer than ``limit``.

    ``larger``: the model supports a larger context.
    """
    which = f"{len(cut)} of {count} texts, the first is text {cut[0]}"
    more = "the model takes no more"
    if larger:
        more = "load the model with a larger context_length (--ctx) to have more"
    return f"texts were cut to {limit} tokens ({which}); {more}"
