"""What a grammar may cost: its text, its compilation, a step."""

from __future__ import annotations

from typing import Any, Final

from trinity.errors import InputError
from trinity.grammar.library import llguidance

LONGEST: Final = 1 << 20  # characters of a schema, an expression or a grammar
DEEPEST: Final = 100  # levels of a schema, brackets of an expression or a grammar
MOST_CHOICES: Final = 10_000
LONGEST_MESSAGE: Final = 400
# Of the process that compiles a grammar before this one does: processor time, and memory.
SECONDS: Final = 0.8
MEMORY_BYTES: Final = 400 << 20
# Of llguidance: work of the lexer, 14 to 50 thousand a millisecond; items of the parser, 20
# thousand a millisecond; states of the lexer, 1 to 2 kB each.
INITIAL_LEXER_FUEL: Final = 1_000_000
STEP_LEXER_FUEL: Final = 200_000
STEP_ITEMS: Final = 50_000
LEXER_STATES: Final = 50_000
GRAMMAR_SIZE: Final = 500_000


def parser_limits() -> Any:
    """The limits for llguidance; its messages then hold no text of the answer."""
    return llguidance().LLParserLimits(
        initial_lexer_fuel=INITIAL_LEXER_FUEL,
        step_lexer_fuel=STEP_LEXER_FUEL,
        step_max_items=STEP_ITEMS,
        max_lexer_states=LEXER_STATES,
        max_grammar_size=GRAMMAR_SIZE,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def check_size(what: str, text: object) -> str:
    """Raise InputError for what is no text, or too long a one."""
    if not isinstance(text, str):
        raise InputError(f"{what} is of type {type(text).__name__}; it must be text")
    if len(text) > LONGEST:
        raise InputError(f"{what} has {len(text)} characters; at most {LONGEST} are taken")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds the lone surrogate {text[error.start]!r}") from error
    return text


def short(message: str) -> str:
    """What of a message of llguidance a user can use, in one line: no state, no options of its."""
    message = message.partition("\n<")[0]
    if message.startswith("oneOf constraints are not supported"):
        return "the cases of oneOf may overlap; write anyOf, or a const that tells them apart"
    words = (word for word in message.split() if word.strip("^|"))
    message = " ".join(words).replace("json-schema:///", "")
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "..."
