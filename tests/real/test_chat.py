"""Conversations in a published model's chat format, against transformers and llama.cpp."""

from __future__ import annotations

import pytest

import trinity
from tests.conftest import GetModel
from tests.real.conversations import CONVERSATIONS
from tests.real.text_goldens import chat_goldens


@pytest.mark.parametrize("name", ["smollm2"])
def test_conversations_are_rendered_as_by_transformers(name: str, real_model: GetModel) -> None:
    cases = [(messages, opens) for messages in CONVERSATIONS for opens in (False, True)]
    with trinity.load(real_model(name)) as model:
        for (messages, opens), expected in zip(cases, chat_goldens(name), strict=True):
            assert expected["add_generation_prompt"] == opens
            prompt = model.chat_prompt(messages, add_generation_prompt=opens)
            assert prompt.text == expected["text"]
            ids = model.apply_chat_template(messages, add_generation_prompt=opens)
            assert ids == prompt.ids == expected["ids"]
