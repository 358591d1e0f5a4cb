"""A plugin for llm (https://llm.datasette.io) that runs GGUF files and directories in its process.

    pip install trinity-llm ./examples/llm-trinity
    llm -m trinity-demo "Who was Prince Andrew?"

TRINITY_MODELS lists the models as NAME=MODEL, separated by commas. The demo chat model is always
available as trinity-demo.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llm
from pydantic import Field

import trinity


@cache
def loaded(ref: str) -> trinity.Model:
    """Load a model once; it stays loaded until the process ends."""
    return trinity.load(ref or trinity.chat_model())


class TrinityModel(llm.Model):
    """One model. A conversation becomes the messages before the prompt."""

    can_stream = True

    class Options(llm.Options):
        """Options of ``trinity.Model.chat``."""

        max_tokens: int | None = Field(None, description="most tokens of the answer", ge=1)
        temperature: float | None = Field(None, description="0: always the most probable", ge=0)
        top_p: float | None = Field(None, description="nucleus sampling", ge=0, le=1)
        top_k: int | None = Field(None, description="only the k most probable", ge=0)
        seed: int | None = Field(None, description="the same seed, the same answer", ge=0)

    def __init__(self, name: str, ref: str) -> None:
        self.model_id, self._ref = name, ref

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[str]:  # fmt: skip
        """Yield the chunks of the response."""
        messages: list[dict[str, Any]] = []
        for before in conversation.responses if conversation else ():
            messages += _asked(before.prompt)
            messages.append({"role": "assistant", "content": before.text_or_raise()})
        messages += _asked(prompt)
        options = {k: v for k, v in prompt.options.model_dump().items() if v is not None}
        for piece in loaded(self._ref).chat_stream(messages, **options):
            yield piece.text


def _asked(prompt: llm.Prompt) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, {"role": "user", "content": prompt.prompt}]


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Return the demo model and those of TRINITY_MODELS."""
    register(TrinityModel("trinity-demo", ""))
    for one in filter(None, os.environ.get("TRINITY_MODELS", "").split(",")):
        name, _, ref = one.partition("=")
        register(TrinityModel(name, ref))
