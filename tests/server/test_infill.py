"""POST /infill: the layout of llama.cpp's `format_prompt_infill`; nothing is cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.tokenizers.small_vocabularies import bpe_metadata
from trinity.model import Model
from trinity.server.endpoints.llama_infill import ExtraFile, InfillRequest
from trinity.tokenizers import Tokenizer, tokenizer_from_metadata

MARKS = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
FILES = ["<|repo_name|>", "<|file_sep|>"]
BODY = {"input_prefix": "def f(", "prompt": "a", "input_suffix": "):", "temperature": 0,
        "n_predict": 6}  # fmt: skip
CONTROL = 3


def tokenizer_with(*words: str) -> Tokenizer:
    return tokenizer_from_metadata(bpe_metadata(words=[(word, CONTROL) for word in words]))


def prompt_of(tokenizer: Tokenizer, **body: Any) -> str:
    def tokenize(text: str, *, add_bos: bool = True, add_eos: bool = False) -> list[int]:
        return tokenizer.encode(text, add_bos=add_bos, add_eos=add_eos)

    model: Any = SimpleNamespace(tokenizer=tokenizer, tokenize=tokenize)
    given = {name: BODY[name] for name in ("input_prefix", "prompt", "input_suffix")}
    return tokenizer.whole_text(InfillRequest(**given, **body).tokens(model))  # type: ignore[arg-type]


def test_layout_with_marks_of_files() -> None:
    found = prompt_of(
        tokenizer_with(*MARKS, *FILES), input_extra=[ExtraFile("int n;", "a.h"), ExtraFile("B")]
    )
    assert found.removeprefix("<s>") == (
        "<|repo_name|>myproject\n<|file_sep|>a.h\nint n;<|file_sep|>tmp\nB<|file_sep|>filename\n"
        "<|fim_prefix|>def f(a<|fim_suffix|>):<|fim_middle|>"
    )


def test_layout_without_marks_of_files() -> None:
    found = prompt_of(tokenizer_with(*MARKS), input_extra=[ExtraFile("A"), ExtraFile("B")])
    assert found.removeprefix("<s>") == (
        "\n\n--- snippet ---\n\nA\n\n--- snippet ---\n\nB"
        "<|fim_prefix|>def f(a<|fim_suffix|>):<|fim_middle|>"
    )


def test_marks_that_are_written_are_text() -> None:
    tokenizer = tokenizer_with(*MARKS)
    ids = tokenizer.infill_ids
    assert ids is not None
    model: Any = SimpleNamespace(
        tokenizer=tokenizer,
        tokenize=lambda text, add_bos=True, add_eos=False: tokenizer.encode(text, add_bos=add_bos),
    )
    found = InfillRequest(input_prefix=MARKS[2], input_suffix=MARKS[0]).tokens(model)
    assert [one for one in found if one in ids] == list(ids)


def test_answers_are_those_of_completion(
    client: TestClient, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = (300, 301, 302)
    monkeypatch.setattr(model.tokenizer, "infill_ids", marks)

    def ids(text: str) -> list[int]:
        return model.tokenize(text, add_bos=False)

    prompt = [*model.tokenize(""), 300, *ids("def f("), *ids("a"), 301, *ids("):"), 302]
    rest = {"temperature": 0, "n_predict": 6}
    alone = strict(client.post("/completion", json={"prompt": prompt, **rest}).text)
    found = strict(client.post("/infill", json=BODY).text)
    assert found["content"] == alone["content"]
    assert found["tokens_evaluated"] == len(prompt)
    fields = strict(client.post("/infill", json=BODY | {"response_fields": ["content"]}).text)
    assert fields == {"content": alone["content"]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_extra": [{}]}, "input_extra[0].text"),
        ({"input_extra": [{"filename": "ok"}]}, "input_extra[0].text"),
        ({"input_extra": [{"filename": 1, "text": "a"}]}, "input_extra[0].filename"),
        ({"input_prefix": None}, "input_prefix"),
        ({}, None),  # the demo model has no such tokens
    ],
)
def test_refusals(client: TestClient, body: dict[str, Any], param: str | None) -> None:
    response = client.post("/infill", json={**BODY, **body})
    assert response.status_code == 400, response.text
    assert strict(response.text)["error"]["param"] == param
