"""Grammars: constraints on a response, usable with any model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import InputError
from trinity.grammar.guide import MatcherGuide
from trinity.grammar.lark import numbered
from trinity.grammar.library import llguidance
from trinity.grammar.limits import DEEPEST, MOST_CHOICES, check_size, parser_limits, short
from trinity.grammar.schema import text_of
from trinity.grammar.trial import checked, made
from trinity.grammar.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer

# JSON is written as by Python's json.dumps, so that a grammar forces everything but values.
ONE_LINE = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
ANY_SPACE: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on a response, for the option ``grammar`` of every method that generates.

    It is immutable and independent of a model; a model compiles it for the first response that uses
    it. The class methods below create and check grammars. They raise InputError, for a schema with
    the path, for everything that cannot be enforced; nothing is ignored silently. They take at most
    about a second and need ``pip install "trinity-llm[grammar]"``.
    """

    kind: str
    """The language of ``text``: "json_schema" or "lark"."""
    text: str
    """The schema as JSON, or the grammar."""

    def __post_init__(self) -> None:
        check_size("the grammar", self.text)
        checked(self.kind, self.text)

    @classmethod
    def json_schema(
        cls, schema: Mapping[str, Any] | str | bool, *, whitespace: bool = False,
        open_objects: bool = False,
    ) -> Grammar:  # fmt: skip
        """JSON that matches a schema, given as a dict or as JSON text.

        ``whitespace`` allows any white space between the parts. Without it JSON is written in one
        line as by Python's json.dumps, which is faster because more tokens are forced.

        An object has only the properties that its schema names, as in llama.cpp, unless the schema
        has additionalProperties or names none. With ``open_objects`` an object may have other
        properties, as JSON Schema specifies.

        Properties have the schema's order; others follow. Formats are enforced. Raises InputError
        with the path of a keyword that cannot be enforced (docs/structured_output.md lists them).
        """
        style = ANY_SPACE if whitespace else ONE_LINE
        text = made("json_schema", text_of(schema), closed=not open_objects, style=style)
        return cls("json_schema", text)

    @classmethod
    def json_object(cls, *, whitespace: bool = False) -> Grammar:
        """Any JSON object."""
        return cls.json_schema({"type": "object"}, whitespace=whitespace)

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """A text that matches a regular expression as a whole; look-around is not supported.

        ``\\d`` is 0 to 9. Source of the syntax: https://docs.rs/regex.
        """
        check_size("the regular expression", pattern)
        if max_depth(pattern) > DEEPEST:
            raise InputError(f"the regular expression has more than {DEEPEST} levels of brackets")
        return cls("lark", made("regex", pattern))

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """A grammar in llguidance's Lark with the start rule ``start``.

        ``<name>`` is the control or user-defined token of that text in the model's vocabulary, such
        as ``<|call|>``. ``%json {...}`` is JSON of a schema, as in ``json_schema``.

        Source of the syntax: https://github.com/guidance-ai/llguidance, docs/syntax.md.
        """
        check_size("the grammar", text)
        return cls("lark", made("lark", text, style=ONE_LINE))

    @classmethod
    def gbnf(cls, text: str) -> Grammar:
        """A grammar in llama.cpp's GBNF with the start rule ``root``."""
        check_size("the grammar", text)
        return cls("lark", made("gbnf", text))

    @classmethod
    def choice(cls, texts: Sequence[str]) -> Grammar:
        """One of several texts."""
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise InputError(f"a choice is a non-empty list of texts, not {texts!r:.80}")
        if len(texts) > MOST_CHOICES:
            raise InputError(f"the choice has {len(texts)} texts; the limit is {MOST_CHOICES}")
        # The choice is one terminal, because the parser takes at most 2,000 alternatives of a rule.
        empty = ' | ""' if "" in texts else ""
        said = [quoted(text) for text in dict.fromkeys(texts) if text]
        if not said:
            return cls("lark", 'start: ""')
        return cls("lark", f"start: CHOICE{empty}\nCHOICE: {' | '.join(said)}")

    def guide(self, tokenizer: Tokenizer, vocab_size: int) -> MatcherGuide:
        """Return a guide at the start of a response, for logits of ``vocab_size``.

        Raises InputError if the vocabulary lacks a token that the grammar names.
        """
        vocabulary = vocabulary_of(tokenizer)
        return MatcherGuide(
            vocabulary.matcher(self, len(self.text), self.compiled),
            vocabulary.table.vocab_size,
            vocab_size,
        )

    def prepare(self, tokenizer: Tokenizer) -> None:
        """Compile the grammar for a vocabulary, so that later guides start immediately.

        Raises as ``guide``, and NotCompiledError.
        """
        vocabulary_of(tokenizer).matcher(self, len(self.text), self.compiled)

    def compiled(self, table: Any, ids: Mapping[str, int]) -> Any:
        """Return llguidance's matcher over a table of tokens. Raises InputError."""
        if self.kind == "json_schema":
            part = {"json_schema": json.loads(self.text)}
        else:
            part = {"lark_grammar": numbered(self.text, lambda name: token_of(name, ids))}
        text = json.dumps({"grammars": [part]})
        matcher = llguidance().LLMatcher(table, text, log_level=0, limits=parser_limits())
        if matcher.is_error():
            raise InputError(f"the grammar cannot be used: {short(matcher.get_error())}")
        return matcher


def token_of(name: str, ids: Mapping[str, int]) -> int:
    """Return the id of a token that a grammar names. Raises InputError."""
    token = ids.get(name)
    if token is None:
        some = ", ".join(sorted(text for text in ids if text.startswith("<"))[:20])
        raise InputError(
            f"the grammar names the token {name}, which the model's vocabulary does not have; it "
            f"has {some or 'none that can be named'}"
        )
    return token


def quoted(text: str) -> str:
    """Return a text as a Lark string."""
    check_size("a text of the choice", text)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def max_depth(pattern: str) -> int:
    """Return the nesting depth of brackets; the real depth may be larger."""
    depth = deepest = 0
    for character in pattern:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest
