"""Constrain completions to a JSON schema, a choice and a regular expression.

python examples/05_json.py model.gguf
"""

import json
import sys

import trinity

grammar = trinity.Grammar.json_schema(
    {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 30},
            "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
            "tags": {"type": "array", "items": {"enum": ["calm", "loud", "old"]}, "maxItems": 2},
        },
        "required": ["title", "year", "tags"],
        "additionalProperties": False,
    }
)

with trinity.load(sys.argv[1]) as model:
    answer = model.generate("A song:", grammar=grammar, seed=1)
    print(json.loads(answer.text), f"({answer.timings.forced_tokens} tokens were forced)")
    mood = model.generate("Is it calm?", grammar=trinity.Grammar.choice(["yes", "no"]))
    day = model.generate("It was on", grammar=trinity.Grammar.regex(r"(Mon|Tues|Fri)day"))
    print(mood, day)
