"""Limits of a grammar's text, its compilation and a step."""

from __future__ import annotations

import re
from typing import Any, Final

from trinity.errors import InputError
from trinity.grammar.library import llguidance

LONGEST: Final = 1 << 20  # characters of a schema, an expression or a grammar
DEEPEST: Final = 100  # levels of a schema, brackets of an expression or a grammar
MOST_CHOICES: Final = 10_000
LONGEST_MESSAGE: Final = 400
# Processor time and memory of the child process that compiles a grammar first.
SECONDS: Final = 0.8
MEMORY_BYTES: Final = 400 << 20
# Of llguidance: work of the lexer, 14 to 50 thousand a millisecond; items of the parser, 20
# thousand a millisecond; states of the lexer, 1 to 2 kB each.
INITIAL_LEXER_FUEL: Final = 1_000_000
STEP_LEXER_FUEL: Final = 200_000
STEP_ITEMS: Final = 50_000
LEXER_STATES: Final = 50_000
GRAMMAR_SIZE: Final = 500_000
ROW_ITEMS: Final = 2_000
# Beginnings of llguidance's messages, and their meaning for the author of the grammar.
_MEANINGS: Final = {
    "oneOf constraints are not supported": (
        "the cases of oneOf may overlap; write anyOf, or a const that tells them apart"
    ),
    "NoExtension": (
        "no text matches it: its parts contradict each other or refer only to themselves"
    ),
    "Parser Error: Current row has": (
        f"more than {ROW_ITEMS} alternatives are open at one position; write them as a terminal, "
        "whose name has capital letters"
    ),
    "ParserTooComplex": "it is too complex for one step of the parser",
    "LexerTooComplex": "it is too complex for one step of the lexer",
    "InternalError": "the grammar library failed on it",
}
_EXCERPT: Final = re.compile(r"\n +\d+ \| ")
_PLACE: Final = re.compile(r"(?:at )?(?P<line>\d+)\((?P<column>\d+)\): ")


def parser_limits() -> Any:
    """Return the limits for llguidance; its messages then contain no text of the response."""
    return llguidance().LLParserLimits(
        max_items_in_row=ROW_ITEMS,
        initial_lexer_fuel=INITIAL_LEXER_FUEL,
        step_lexer_fuel=STEP_LEXER_FUEL,
        step_max_items=STEP_ITEMS,
        max_lexer_states=LEXER_STATES,
        max_grammar_size=GRAMMAR_SIZE,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def check_size(what: str, text: object) -> str:
    """Raise InputError unless it is a text of allowed length."""
    if not isinstance(text, str):
        raise InputError(f"{what} is of type {type(text).__name__}; it must be text")
    if len(text) > LONGEST:
        raise InputError(f"{what} has {len(text)} characters; the limit is {LONGEST}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} contains the lone surrogate {text[error.start]!r}") from error
    return text


def json_fault(error: Exception) -> str:
    """Describe what is wrong with a JSON text."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "Exceeds the limit" in str(error):  # the message of int() is about Python's settings
        return "it has a number with too many digits"
    return str(error)


def short(message: str, *, is_source: bool = True) -> str:
    """Return a message of llguidance in one line and in usual words.

    Its state, its options and its excerpts of the grammar are removed. ``is_source``: its line
    numbers refer to the client's own text.
    """
    message = _EXCERPT.split(message.partition("\n<")[0])[0]
    for begin, meaning in _MEANINGS.items():
        if message.startswith(begin):
            return meaning
    place = _PLACE.match(message)
    if place is not None:
        where = f"line {place['line']}, column {place['column']}: " if is_source else ""
        message = where + message[place.end() :]
    words = (word for word in message.split() if word.strip("^|"))
    message = " ".join(words).replace("json-schema:///", "")
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "..."
