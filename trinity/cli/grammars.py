"""The grammar of a command line, given in one of three ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.cli.parameters import BadParameter
from trinity.cli.prompts import given_text
from trinity.errors import about

if TYPE_CHECKING:
    from trinity.grammar.grammar import Grammar


def given_grammar(json_schema: str | None, regex: str | None, file: str | None) -> Grammar | None:
    """Return the grammar of --json-schema, --regex or --grammar.

    Raises BadParameter for several.
    """
    if sum(form is not None for form in (json_schema, regex, file)) > 1:
        raise BadParameter("give only one of --json-schema, --regex and --grammar")
    if json_schema is None and regex is None and file is None:
        return None
    from trinity.grammar.gbnf import is_gbnf
    from trinity.grammar.grammar import Grammar

    if regex is not None:
        return Grammar.regex(regex)
    if json_schema is not None:
        if json_schema.lstrip().startswith("{"):
            return Grammar.json_schema(json_schema)
        with about(json_schema):
            return Grammar.json_schema(read(json_schema, "schema"))
    if "::=" in str(file):
        raise BadParameter("--grammar takes a file; write the grammar into one and give its name")
    text = read(str(file), "grammar")
    with about(str(file)):
        return Grammar.gbnf(text) if is_gbnf(text) else Grammar.lark(text)


def read(file: str, what: str) -> str:
    """Read a file as text."""
    return given_text(None, file, what=what, usage=f"give the {what}'s file")
