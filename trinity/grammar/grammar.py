"""The description of what an answer may be, which any model can follow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import InputError
from trinity.grammar.guide import MatcherGuide, shortened
from trinity.grammar.library import llguidance
from trinity.grammar.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from trinity.tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Grammar:
    kind: str
    text: str

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str | bool) -> Grammar:
        if isinstance(schema, str):
            schema = json.loads(schema)
        return cls(
            "json_schema",
            json.dumps(
                {
                    "grammars": [
                        {
                            "json_schema": {
                                **schema,
                                "x-guidance": {
                                    "whitespace_flexible": False,
                                    "item_separator": ", ",
                                    "key_separator": ": ",
                                },
                            }
                        }
                    ]
                }
            ),
        )

    @classmethod
    def json_object(cls) -> Grammar:
        return cls.json_schema({"type": "object"})

    @classmethod
    def lark(cls, text: str) -> Grammar:
        return cls("lark", json.dumps({"grammars": [{"lark_grammar": text}]}))

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        return cls("regex", llguidance().LLMatcher.grammar_from_regex(pattern))

    @classmethod
    def choice(cls, texts: Sequence[str]) -> Grammar:
        return cls.lark("start: " + " | ".join(json.dumps(x, ensure_ascii=False) for x in texts))

    def guide(self, tokenizer: Tokenizer, vocab_size: int) -> MatcherGuide:
        vocabulary = vocabulary_of(tokenizer)
        l = llguidance()
        m = l.LLMatcher(
            vocabulary.table, self.text, log_level=0, limits=l.LLParserLimits(verbose_errors=False)
        )
        if m.is_error():
            raise InputError(shortened(m.get_error()))
        return MatcherGuide(m, vocabulary.table.vocab_size, vocab_size)
