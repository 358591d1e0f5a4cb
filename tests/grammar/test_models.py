"""Responses of small trained models under the schemas of test_answers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import trinity
from tests.grammar.test_answers import SCHEMAS
from tests.matrix import some
from trinity.grammar.grammar import Grammar
from trinity.runtime.generation import Completion

STORIES = Path(__file__).resolve().parents[1] / "data" / "stories260K" / "Q4_0.gguf"
NAMES = list(SCHEMAS)


@pytest.fixture(scope="module", params=["demo", "stories260K"])
def model(request: pytest.FixtureRequest) -> Any:
    path = trinity.demo_model() if request.param == "demo" else str(STORIES)
    with trinity.load(path, context_length=128, threads=2) as loaded:
        yield loaded


@pytest.mark.parametrize("first", some(range(0, len(NAMES), 8), [16]))
def test_instances(model: trinity.Model, first: int) -> None:
    """Eight schemas run together; complete outputs are valid, others are prefixes of valid ones."""

    def answer(name: str) -> Completion:
        grammar = Grammar.json_schema(SCHEMAS[name])
        return model.generate("Once upon a time", grammar=grammar, max_tokens=40, seed=first)

    names = NAMES[first : first + 8]
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(names, pool.map(answer, names), strict=True))
    assert sum(found.finish_reason == "stop" for found in answers.values()) >= len(names) // 2
    for name, found in answers.items():
        if found.finish_reason == "stop":
            validator = jsonschema_rs.validator_for(SCHEMAS[name], validate_formats=True)
            assert validator.is_valid(json.loads(found.text)), (name, found.text)
        else:
            guide = Grammar.json_schema(SCHEMAS[name]).guide(model.tokenizer, 1 << 16)
            guide.accept(found.token_ids)


def test_achat_and_astream(model: trinity.Model) -> None:
    import asyncio

    async def both() -> tuple[str, str]:
        grammar = Grammar.choice(["left", "right"])
        found = await model.achat(
            [{"role": "user", "content": "a"}],
            template="{{ messages[0].content }}",
            grammar=grammar,
        )
        return found.text, "".join([c.text async for c in model.astream("a", grammar=grammar)])

    assert set(asyncio.run(both())) <= {"left", "right"}
