"""The keywords of JSON Schema: which are enforced, annotations, or refused and why.

Source: JSON Schema 2020-12, Core and Validation, and the older names that are still in use.
"""

from __future__ import annotations

from typing import Final

# The keywords that contain schemas.
SCHEMA_KEYS: Final = frozenset({"additionalProperties", "items", "additionalItems"})
MAP_KEYS: Final = frozenset({"properties", "patternProperties"})
LIST_KEYS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
# Schemas that apply only where they are referred to.
DEFINITIONS: Final = frozenset({"$defs", "definitions"})

COUNTS: Final = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
ENFORCED: Final = (
    SCHEMA_KEYS | MAP_KEYS | LIST_KEYS | COUNTS | NUMBERS
    | {"$ref", "const", "enum", "type", "required", "pattern", "format", "multipleOf",
       "dependentRequired", "dependentSchemas", "dependencies",
       "not", "if", "then", "else"}
)  # fmt: skip
TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

ANNOTATIONS: Final = frozenset(
    {"$anchor", "$comment", "$dynamicAnchor", "$id", "id", "$schema", "title", "description",
     "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "contentEncoding",
     "contentMediaType", "contentSchema", "discriminator", "xml", "externalDocs"}
)  # fmt: skip

_SAY = "what it excludes cannot be enforced token by token"
REFUSED: Final = {
    "$dynamicRef": "only $ref is followed",
    "$recursiveRef": "only $ref is followed",
    "$recursiveAnchor": "only $ref is followed",
    "$vocabulary": "it belongs to meta-schemas",
    "not": f"{_SAY}; say what is allowed instead",
    "if": f"{_SAY}; write anyOf of both cases instead",
    "contains": _SAY,
    "minContains": _SAY,
    "maxContains": _SAY,
    "uniqueItems": _SAY,
    "propertyNames": "only a list of names is; write patternProperties and "
    "additionalProperties: false instead",
    "unevaluatedProperties": "write additionalProperties instead",
    "unevaluatedItems": "write items instead",
    "nullable": 'without a single type: write "null" among the types instead',
}
KNOWN: Final = ENFORCED | ANNOTATIONS | DEFINITIONS | REFUSED.keys()

# The $comment of a part that the client did not send, but that expresses the same as one.
OTHER_WORDS: Final = "said in other words"

DIALECTS: Final = frozenset(
    {"json-schema.org/schema"}
    | {f"json-schema.org/draft-{n}/schema" for n in ("03", "04", "05", "06", "07")}
    | {f"json-schema.org/draft/{n}/schema" for n in ("2019-09", "2020-12")}
)
