"""The document of this API, made of the table of endpoints: GET /openapi.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from threading import Lock
from typing import Any

import msgspec

from trinity import __version__
from trinity.server.endpoint import ASGI, Call, Document, Endpoint
from trinity.server.ignored import IGNORABLE
from trinity.server.schemas import encode

PLACE = "#/components/schemas/{name}"
# Responses that every endpoint may give in addition to its own.
REFUSALS = {
    "400": "What is wrong with the request.", "401": "The key is missing or wrong.",
    "403": "The Host or the Origin is not let in.", "404": "There is no such model.",
    "408": "The body did not come in time.", "413": "The body is too long.",
    "415": "The encoding is unknown.", "429": "Too many wait; Retry-After says when to come.",
    "500": "The server failed.", "501": "The path is turned off.",
    "503": "The model is not loaded, or the server is stopping.",
    "504": "The request took too much time.",
}  # fmt: skip

_NUMBER = {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"}
# Other forms in which a request may give a type; the server converts them.
OTHER_FORMS: dict[str, list[dict[str, Any]]] = {
    "boolean": [
        {"enum": [0, 1]},
        {"type": "string", "pattern": "^([01]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"},
    ],
    "integer": [_NUMBER],
    "number": [_NUMBER],
    "null": [{"type": "string", "pattern": "^[Nn][Uu][Ll][Ll]$"}],
    "object": [{"type": "array", "maxItems": 0}],
}

_making = Lock()


async def openapi(call: Call[Any]) -> ASGI:
    """Return the OpenAPI document of all endpoints."""
    return Document(await call.run(encoded, call.request.app.state.endpoints), "application/json")


def encoded(endpoints: tuple[Endpoint, ...]) -> bytes:
    """``document`` as JSON. It takes some 0.2 s, so a second thread waits for the first."""
    with _making:
        return _encoded(endpoints)


@cache
def _encoded(endpoints: tuple[Endpoint, ...]) -> bytes:
    return encode(document(endpoints))


def document(endpoints: tuple[Endpoint, ...]) -> dict[str, Any]:
    """The OpenAPI 3.2 document of endpoints."""
    kinds = _kinds(endpoints)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=PLACE)
    by_kind = dict(zip(map(repr, kinds), schemas, strict=True))
    bodies = [by_kind[repr(endpoint.body)] for endpoint in endpoints if endpoint.body is not None]
    for name in _reached(bodies, components):
        components[name] = _inside(components[name])
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, path, by_kind)
    return {
        "openapi": "3.2.0",
        "info": {"title": "trinity", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _kinds(endpoints: Iterable[Endpoint]) -> list[Any]:
    kinds: dict[str, Any] = {}
    for endpoint in endpoints:
        for kind in (
            endpoint.body,
            endpoint.form,
            endpoint.answer,
            endpoint.event,
            endpoint.family.schema,
        ):
            if kind is not None:
                kinds.setdefault(repr(kind), kind)
    return list(kinds.values())


def _reached(schemas: list[Any], components: Mapping[str, Any]) -> list[str]:
    """The names of the components that schemas refer to, directly or through others."""
    found: dict[str, None] = {}
    left: list[Any] = list(schemas)
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            left += part.values()
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name in components and name not in found:
                found[name] = None
                left.append(components[name])
    return list(found)


def _accepted(schema: dict[str, Any], *, optional: bool = False) -> dict[str, Any]:
    """The schema of all that a request may contain where ``schema`` describes the value.

    ``optional``: null is allowed, and means "not given".
    """
    plain = {name: value for name, value in schema.items() if name != IGNORABLE}
    default = {"default": plain.pop("default")} if "default" in plain else {}
    options = plain.pop("anyOf", None)
    if options is None:
        options, plain = [plain], {}
    kinds = ["object" if "$ref" in option else str(option.get("type")) for option in options]
    forms = [_inside(option) for option in options]
    if optional and "null" not in kinds:
        forms.append({"type": "null"})
    for other in (form for kind in kinds for form in OTHER_FORMS.get(kind, ())):
        if other.get("type") not in kinds and other not in forms:
            forms.append(other)
    if IGNORABLE in schema:
        forms.append({"description": "Any other value is ignored."})
    if len(forms) == 1 and not plain:
        return {**forms[0], **default}
    return {**plain, "anyOf": forms, **default}


def _inside(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with ``_accepted`` of its members; undeclared ones are ignored."""
    made = dict(schema)
    if made.get("additionalProperties") is False:
        del made["additionalProperties"]
    if "properties" in made:
        required = made.get("required", ())
        made["properties"] = {
            name: _accepted(member, optional=name not in required)
            for name, member in made["properties"].items()
        }
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _accepted(made[name])
    return made


def _operation(endpoint: Endpoint, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    answered: dict[str, Any] = {"200": {"description": "As asked.", "content": content}}
    if endpoint.empty:
        answered = {"204": {"description": "Done."}}
    elif endpoint.answer is not None:
        content[endpoint.media_type] = {"schema": _answer(endpoint, schemas)}
    elif endpoint.media_type != "application/json":
        content[endpoint.media_type] = {"schema": {"type": "string"}}
    else:
        content[endpoint.media_type] = {"schema": {"type": "object"}}
    if endpoint.event is not None:
        content[endpoint.stream_type] = {"itemSchema": _item(endpoint, schemas)}
    error = {"application/json": {"schema": schemas[repr(endpoint.family.schema)]}}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{path}").strip("_"),
        "responses": {
            **answered,
            **{
                status: {"description": text, "content": error} for status, text in REFUSALS.items()
            },
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.bodiless,
            "content": {"application/json": {"schema": schemas[repr(endpoint.body)]}},
        }
    if endpoint.upload:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    if endpoint.form is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"multipart/form-data": {"schema": schemas[repr(endpoint.form)]}},
        }
    names = re.findall(r"\{(\w+)\}", path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    if endpoint.query is not None:
        parameters += _query(endpoint.query)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.open:
        operation["security"] = []
    return operation


def _query(kind: Any) -> list[dict[str, Any]]:
    """The parameters of a query."""
    _, components = msgspec.json.schema_components([kind], ref_template=PLACE)
    fields = components[kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in fields["required"], "schema": schema}
        for name, schema in fields["properties"].items()
    ]


def _answer(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of an answer."""
    answer: dict[str, Any] = schemas[repr(endpoint.answer)]
    if not endpoint.chosen:
        return answer
    fields = {"type": "object", "description": "The fields that the request chose."}
    return {"anyOf": [answer, fields, {"type": "array", "items": fields}]}


def _item(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of one item of a stream: an object of an event's fields, or a line's JSON."""
    data = {"anyOf": [schemas[repr(kind)] for kind in (endpoint.event, endpoint.family.schema)]}
    if endpoint.chosen:
        data["anyOf"].append({"type": "object"})
    if endpoint.stream_type != "text/event-stream":
        return data
    event = {
        "type": "object",
        "properties": {
            "event": {"type": "string"},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": data,
            },
        },
        "required": ["data"],
    }
    if not endpoint.done:
        return event
    last = {"type": "object", "properties": {"data": {"const": "[DONE]"}}, "required": ["data"]}
    return {"anyOf": [last, event]}


ENDPOINTS = (Endpoint("GET", "/openapi.json", openapi, "This document."),)
