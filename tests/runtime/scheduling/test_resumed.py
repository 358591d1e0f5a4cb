"""Interrupted responses continue as if they had not been interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import trinity
from trinity import InputError
from trinity.model import Model

PROMPT = "Prince Andrew was"
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
          "kind": {"enum": ["soldier", "statesman"]}, "age": {"type": "integer"}},
          "required": ["name", "kind", "age"], "additionalProperties": False}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "max_tokens": 20},
    "drawn": {"temperature": 1.3, "seed": 5, "max_tokens": 20, "repetition_penalty": 1.2},
    "stopped": {"temperature": 1.0, "seed": 4, "max_tokens": 60, "stop": [",", "."]},
    "grammar": {"grammar": trinity.Grammar.json_schema(PERSON), "seed": 8, "max_tokens": 60},
    "chain": {
        "seed": 6,
        "max_tokens": 20,
        "dry_multiplier": 0.8,
        "typical_p": 0.9,
        "dynatemp_range": 0.4,
    },
    "shifted": {"context_shift": True, "seed": 2, "max_tokens": 90, "ignore_eos": True},
}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with trinity.load(trinity.demo_model(), threads=1, context_length=64) as model:
        yield model


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_goes_on_from_any_of_its_tokens(model: Model, kind: str) -> None:
    options = KINDS[kind]
    whole = model.generate(PROMPT, **options)
    assert len(whole.token_ids) > 3
    for count in range(len(whole.token_ids) + 1):
        chunks = list(model.stream(PROMPT, **options, resumed=whole.token_ids[:count]))
        assert "".join(chunk.text for chunk in chunks) == whole.text
        assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids
        last = chunks[-1]
        assert last.finish_reason == whole.finish_reason
        assert last.timings is not None
        assert last.timings.prompt_tokens == whole.prompt_tokens
        assert last.timings.completion_tokens == len(whole.token_ids)


def test_its_pieces_are_the_same(model: Model) -> None:
    options = KINDS["drawn"]
    whole = list(model.stream(PROMPT, **options))
    ids = [token for chunk in whole for token in chunk.token_ids]
    again = list(model.stream(PROMPT, **options, resumed=ids[:11]))
    assert [chunk.text for chunk in again] == [chunk.text for chunk in whole]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"resumed": "abc"}, "it must be token ids"),
        ({"resumed": [1, -1]}, "one of resumed"),
        ({"resumed": [10**6, 1]}, "the model has ids 0 to"),
        ({"resumed": [5] * 9, "max_tokens": 3}, "the response ends before the last"),
        ({"resumed": [5, 5], "logprobs": 1}, "cannot be used with logprobs"),
        ({"resumed": [5, 5], "mirostat": 2}, "cannot be used with mirostat"),
        ({"resumed": [5, 5], "xtc_probability": 0.5}, "cannot be used with mirostat, xtc"),
        ({"resumed": [5, 5, 5], "grammar": trinity.Grammar.choice(["yes"])}, "allow"),
    ],
)
def test_tokens_that_cannot_be_are_refused(
    model: Model, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(trinity.TrinityError, match=expected):
        list(model.stream(PROMPT, **{"temperature": 0, "max_tokens": 20, **options}))
    assert model.generate(PROMPT, temperature=0, max_tokens=2).token_ids
    assert issubclass(InputError, trinity.TrinityError)
