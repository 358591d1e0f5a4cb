"""OpenAI's OpenAPI document, reduced to what `trinity serve` supports.

The document is openapi.json of https://github.com/openai/openai-openapi; it must be downloaded
first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

Json = dict[str, Any]

OPERATIONS = [
    ("post", "/chat/completions"), ("post", "/completions"), ("post", "/responses"),
    ("post", "/embeddings"), ("get", "/models"), ("get", "/models/{model}"),
]  # fmt: skip
# Where the document does not say what OpenAI's service itself sends, and its client reads.
SAID_BY_THE_SERVICE: list[tuple[str, Any]] = [
    # A chunk of a stream has no reason yet, and the first token of an echoed prompt no probability.
    ("CreateCompletionResponse/properties/choices/items/properties/finish_reason", None),
    ("CreateCompletionResponse/properties/choices/items/properties/logprobs/anyOf/0/properties"
     "/token_logprobs/items", None),
    ("CreateCompletionResponse/properties/choices/items/properties/logprobs/anyOf/0/properties"
     "/top_logprobs/items", None),
    # With encoding_format base64.
    ("Embedding/properties/embedding", ""),
    # The document's own examples have null.
    ("ModelResponseProperties/properties/user", None),
    ("Response/allOf/2/properties/usage", None),
]  # fmt: skip


class OpenAIDocument:
    """The operations and schemas that are used."""

    def __init__(self, path: Path) -> None:
        whole = json.loads(path.read_text(encoding="utf-8"))
        self.paths: dict[str, Json] = {}
        for method, place in OPERATIONS:
            self.paths.setdefault(place, {})[method] = nullable(whole["paths"][place][method])
        self.components = nullable(reachable(self.paths, whole["components"]))
        for pointer, example in SAID_BY_THE_SERVICE:
            self._also_allow(pointer, {"type": "null" if example is None else "string"})

    def _also_allow(self, pointer: str, schema: Json) -> None:
        *parents, last = pointer.split("/")
        at: Any = self.components["schemas"]
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at[name]
        at[last] = {"anyOf": [at[last], schema]}

    def document(self) -> Json:
        """Return a document of only these operations."""
        return {
            "openapi": "3.1.0",
            "info": {"title": "OpenAI", "version": "1"},
            "paths": self.paths,
            "components": self.components,
        }

    @cache  # noqa: B019
    def answer(self, method: str, path: str, media_type: str) -> jsonschema_rs.Validator | None:
        """Return the validator of a response or event, or None if the document has none."""
        operation = self.paths.get(path, {}).get(method.lower())
        if operation is None:
            return None
        content = operation["responses"]["200"]["content"]
        if media_type == "text/event-stream" and media_type not in content:
            media_type = "application/json"  # a chunk of /completions is as a whole answer
        schema = {**content[media_type]["schema"], "components": self.components}
        return jsonschema_rs.Draft202012Validator(schema)


def nullable(schema: Any) -> Any:
    """Rewrite a schema's "nullable", which OpenAPI 3.1 no longer has."""
    if isinstance(schema, list):
        return [nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: nullable(one) for key, one in schema.items() if key != "nullable"}
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") is True else found


def reachable(what: Any, components: Json) -> Json:
    """Return the components that ``what`` refers to, directly or through others."""
    found: Json = {}
    left = list(references(what))
    while left:
        kind, name = left.pop()
        if name not in found.setdefault(kind, {}):
            found[kind][name] = components[kind][name]
            left += references(found[kind][name])
    return found


def references(what: Any) -> Iterator[tuple[str, str]]:
    """Return the kinds and names of components in ``what``."""
    yield from re.findall(r'"\$ref": "#/components/(\w+)/([^"/]+)', json.dumps(what))
