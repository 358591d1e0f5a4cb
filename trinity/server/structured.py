"""What an answer may be, from the forms in which APIs say it: JSON, a schema, a grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity.errors import InputError
from trinity.grammar.grammar import Grammar
from trinity.server.endpoints.messages import (
    ChoiceForm,
    GrammarForm,
    ObjectForm,
    ResponseFormat,
    SchemaForm,
    TextForm,
)
from trinity.server.errors import ApiError

SYNTAXES: dict[str, Callable[[str], Grammar]] = {
    "gbnf": Grammar.gbnf,
    "lark": Grammar.lark,
    "regex": Grammar.regex,
}


def format_options(
    form: ResponseFormat | None, schema_at: str = "response_format.json_schema.schema"
) -> dict[str, Any]:
    """GenerationOptions that make the answer of this form; not for the event loop.

    ``schema_at`` is the place of a SchemaForm's schema in the request.
    Raises: ApiError with the place of what cannot be enforced.
    """
    if form is None or isinstance(form, TextForm):
        return {}
    if isinstance(form, ObjectForm):
        schema = {"type": "object"} if form.schema is None else form.schema
        return {"grammar": _made(Grammar.json_schema, schema, "response_format.schema")}
    if isinstance(form, SchemaForm):
        schema = True if form.json_schema.schema is None else form.json_schema.schema
        return {"grammar": _made(Grammar.json_schema, schema, schema_at)}
    if isinstance(form, ChoiceForm):
        return {"grammar": _made(Grammar.choice, form.choices, "response_format.choices")}
    assert isinstance(form, GrammarForm)
    make = SYNTAXES[form.syntax]
    return {"grammar": _made(make, form.definition, "response_format.definition")}


def llama_options(json_schema: Any, grammar: str | None) -> dict[str, Any]:
    """GenerationOptions of llama.cpp's parameters of these names. Raises: ApiError."""
    if json_schema is not None and grammar:
        raise ApiError(400, "json_schema and grammar are both given; use one", "grammar")
    if json_schema is not None:
        return {"grammar": _made(Grammar.json_schema, json_schema, "json_schema")}
    return {"grammar": _made(Grammar.gbnf, grammar, "grammar")} if grammar else {}


def _made(make: Callable[[Any], Grammar], what: Any, param: str) -> Grammar:
    try:
        return make(what)
    except InputError as error:
        raise ApiError(400, f"{param}: {error}", param) from error
