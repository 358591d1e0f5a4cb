from __future__ import annotations

from typing import Any

import pytest

from tests.conversation.transcripts import TOOLS
from trinity.conversation.form import form_of
from trinity.conversation.prompt import ChatPrompt, hides, token_of
from trinity.tokenizers import tokenizer_from_metadata

MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]"]
CONTROL, USER_DEFINED = 3, 4


def tokenizer(kind: int) -> Any:
    """A vocabulary of bytes in which the marks are tokens of a kind."""
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *MARKS, *(f"<0x{i:02X}>" for i in range(256))],
        "tokenizer.ggml.token_type": [2, 3, 3, *[kind] * len(MARKS), *[6] * 256],
        "tokenizer.ggml.scores": [0.0] * (3 + len(MARKS) + 256),
    }
    return tokenizer_from_metadata(metadata)


@pytest.mark.parametrize(("kind", "hidden"), [(CONTROL, True), (USER_DEFINED, False)])
def test_special_marks_must_not_be_skipped(kind: int, hidden: bool) -> None:
    found, form = tokenizer(kind), form_of("<tool_call>", tools=TOOLS)
    assert token_of("<tool_call>", found) == 3
    assert token_of("<tool_cal", found) is None
    assert hides(form, found) == hidden
    ids = [3, *found.encode("{", add_bos=False), 4]
    for skip in (True, False):
        stream = found.stream(skip_special=skip)
        shown = "".join(stream.push(i) for i in ids) + stream.finish()
        assert ("<tool_call>" in shown) == (not hidden or not skip)


def test_a_prompt_knows_its_marks() -> None:
    form = form_of("<tool_call>", tools=TOOLS, tool_choice="required")
    prompt = ChatPrompt([1], "<s>", form, False, tokenizer(CONTROL))
    assert prompt.mark("</think>") == 6
    assert prompt.mark("<other>") == "<other>"
    grammar = prompt.grammar(budget=9)
    assert grammar is not None
    assert "<[3]>" in grammar
    assert "(<[^6]>){0,9} <[6]>" in grammar
    assert prompt.reader().push("x")
