"""Structured output: the parameters of several APIs that constrain a response.

They are OpenAI's ``response_format``, llama.cpp's ``json_schema`` and ``grammar``, vLLM's
``structured_outputs`` and its older ``guided_*``. Each becomes a grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from trinity.errors import InputError
from trinity.grammar.grammar import Grammar
from trinity.grammar.limits import json_fault
from trinity.server.endpoints.messages import (
    ChoiceForm,
    GrammarForm,
    ObjectForm,
    ResponseFormat,
    Schema,
    SchemaForm,
    TextForm,
)
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignored
from trinity.server.schemas import Body, converted, encode

SYNTAXES: dict[str, Callable[[str], Grammar]] = {
    "gbnf": Grammar.gbnf,
    "lark": Grammar.lark,
    "regex": Grammar.regex,
}
# Words of JSON Schema that show that an object is a schema, and not what has one.
_SCHEMA_WORDS = {"properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "items", "$defs"}
_LOOKED_AT = 1 << 16  # characters of a grammar in which its first rule begins
_FORMS: dict[str, type[Body]] = {
    "text": TextForm, "json_object": ObjectForm, "json_schema": SchemaForm,
    "choice": ChoiceForm, "grammar": GrammarForm,
}  # fmt: skip


def response_format_of(
    ignored: Ignored, given: dict[str, Any] | None, where: str = "response_format"
) -> ResponseFormat | None:
    """The form that the object at ``where`` requests. Raises: ApiError for an unknown one."""
    if not given:
        return None
    kind, rest = given.get("type"), {k: v for k, v in given.items() if k != "type"}
    if kind is None:
        kind = "json_schema" if rest.get("json_schema") is not None else "text"
        kind = "json_object" if rest.get("schema") is not None else kind
    if rest.get("value") is not None:  # of Text Generation Inference
        name = "pattern" if kind == "regex" else "schema"
        rest = {name: rest["value"]} | {k: v for k, v in rest.items() if k != "value"}
    if kind == "json":
        kind, rest = "json_schema", {"schema": rest.get("schema")}
    if kind == "regex":
        kind, rest = "grammar", {"syntax": "regex", "definition": rest.get("pattern")}
    if kind == "json_schema":
        if rest.get("json_schema", rest.get("schema")) is None:
            told = "is missing: give an object with the schema"
            raise ApiError(400, f"{where}.json_schema {told}", f"{where}.json_schema")
        rest = {"json_schema": _schema_in(rest)}
    if kind == "grammar" and "grammar" in rest:
        rest = {"syntax": "gbnf", "definition": rest["grammar"]}
    known = _FORMS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise ApiError(
            400, f"{where}.type is {kind!r:.80}; it can be {', '.join(_FORMS)}", f"{where}.type"
        )
    # The tag is the name of the kind, which a part of a union of tagged Structs has.
    return converted(ignored, {"type": kind, **rest}, known, where)  # type: ignore[return-value]


def _schema_in(rest: dict[str, Any]) -> dict[str, Any]:
    """Return the named schema; it may have no name, or be where llama.cpp has it."""
    schema = rest.get("json_schema")
    if schema is None:
        return {"schema": rest.get("schema"), "name": rest.get("name")}
    if isinstance(schema, dict) and "schema" not in schema and _SCHEMA_WORDS & schema.keys():
        return {"schema": schema}
    return schema  # type: ignore[no-any-return]


class StructuredOutputs(Body):
    """vLLM's structured output: one of these fields; its other settings have no effect."""

    json: Any = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None

    def form(self, where: str) -> ResponseFormat | None:
        """The form, or None. Raises: ApiError for two, and for structural tags."""
        given = [
            name
            for name in ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
            if getattr(self, name) not in (None, False)
        ]
        if len(given) > 1:
            raise ApiError(400, f"{where}: {' and '.join(given)} are both given", where)
        if not given:
            return None
        if self.structural_tag is not None:
            raise ApiError(400, f"{where}: structural tags cannot be enforced", where)
        if self.json_object:
            return ObjectForm()
        if self.choice is not None:
            return ChoiceForm(self.choice)
        if self.regex is not None:
            return GrammarForm(self.regex, "regex")
        if self.grammar is not None:
            return GrammarForm(self.grammar, "gbnf" if is_gbnf(self.grammar) else "lark")
        return SchemaForm(Schema(schema=_schema(self.json, where)))


class Forms(Body, kw_only=True):
    """The parameters of structured output: OpenAI's, llama.cpp's and vLLM's."""

    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None

    def form_options(self, ignored: Ignored) -> dict[str, Any]:
        """Return the ``GenerationOptions`` of the format; not for the event loop, since it is slow.

        Raises: ApiError for a format that cannot be enforced, and for two formats.
        """
        given = [
            (name, form)
            for name, form in (
                ("response_format", response_format_of(ignored, self.response_format)),
                ("structured_outputs", self._structured(ignored)),
            )
            if form is not None and not isinstance(form, TextForm)
        ]
        own = llama_options(self.json_schema, self.grammar)
        if len(given) + bool(own) > 1:
            raise ApiError(
                400, f"{given[0][0]} conflicts with another response format", given[0][0]
            )
        return own or (_options(*given[0]) if given else {})

    def _structured(self, ignored: Ignored) -> ResponseFormat | None:
        """vLLM's ``structured_outputs``, or its older ``guided_*``."""
        older = StructuredOutputs(
            self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar,
            self.guided_json_object,
        ).form("guided_json")  # fmt: skip
        if self.structured_outputs is None:
            return older
        newer = self.structured_outputs.form("structured_outputs")
        if older is not None and newer is not None:
            ignored.add("guided_json")  # vLLM also uses the newer one
        return newer or older


def _options(where: str, form: ResponseFormat) -> dict[str, Any]:
    """GenerationOptions of a form, whose errors name the parameter that asked for it."""
    if where == "response_format":
        return format_options(form)
    try:
        return format_options(form)
    except ApiError as error:
        reason = error.message.removeprefix(f"{error.param}: ")
        raise ApiError(400, f"{where}: {reason}", where) from error


def is_gbnf(text: str) -> bool:
    """Whether a grammar is GBNF, whose rules have ``::=``, rather than Lark."""
    rule = re.search(r"^[^\S\n]*+[\w-]++\s*+::=", text[:_LOOKED_AT], re.MULTILINE)
    return rule is not None


def _schema(given: Any, where: str) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        fault = json_fault(error)
        raise ApiError(400, f"{where}: the schema is not valid JSON: {fault}", where) from None


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
        return {"grammar": _schema_grammar(schema, "response_format.schema")}
    if isinstance(form, SchemaForm):
        schema = True if form.json_schema.schema is None else form.json_schema.schema
        return {"grammar": _schema_grammar(schema, schema_at)}
    if isinstance(form, ChoiceForm):
        return {"grammar": _made(Grammar.choice, form.choices, "response_format.choices")}
    assert isinstance(form, GrammarForm)
    make = SYNTAXES[form.syntax]
    return {"grammar": _made(make, form.definition, "response_format.definition")}


def llama_options(json_schema: Any, grammar: str | None) -> dict[str, Any]:
    """Return the ``GenerationOptions`` of llama.cpp's parameters. Raises: ApiError."""
    if json_schema is not None and grammar:
        raise ApiError(400, "json_schema and grammar are both given; use one", "grammar")
    if json_schema is not None:
        return {"grammar": _schema_grammar(json_schema, "json_schema")}
    return {"grammar": _made(Grammar.gbnf, grammar, "grammar")} if grammar else {}


def _schema_grammar(schema: Any, param: str) -> Grammar:
    """Return the grammar of a schema or its text. Raises: ApiError.

    ``json.dumps`` would hold the interpreter's lock ten times as long as ``encode``.
    """
    text = schema if isinstance(schema, str) else encode(schema).decode()
    return _made(Grammar.json_schema, text, param)


def _made(make: Callable[[Any], Grammar], what: Any, param: str) -> Grammar:
    try:
        return make(what)
    except InputError as error:
        raise ApiError(400, f"{param}: {error}", param) from error
