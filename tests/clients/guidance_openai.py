"""guidance: OpenAI-compatible chat, and its vLLM class, which sends grammars."""

# packages: guidance==0.3.1 openai

from __future__ import annotations

from typing import Literal

import guidance
from pydantic import BaseModel
from rows import CHAT, URL, main, row


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def started(kind: type[guidance.models.Model]) -> guidance.models.Model:
    lm = kind(CHAT, base_url=f"{URL}/v1", api_key="none")
    with guidance.user():
        lm += "Invent a person."
    return lm


@row("chat gen")
def _() -> None:
    lm = started(guidance.models.OpenAI)
    with guidance.assistant():
        lm += guidance.gen("answer", max_tokens=8)
    assert lm["answer"]


@row("json (pydantic)")
def _() -> None:
    lm = started(guidance.models.OpenAI)
    with guidance.assistant():
        lm += guidance.json("answer", schema=Person)
    assert Person.model_validate_json(lm["answer"])


EXCUSE = "the client sends grammars only by its class for vLLM"


@row("select", excused=EXCUSE)
def _() -> None:
    lm = started(guidance.models.OpenAI)
    with guidance.assistant():
        lm += guidance.select(["yes", "no"], name="answer")
    assert lm["answer"] in ("yes", "no")


@row("regex", excused=EXCUSE)
def _() -> None:
    lm = started(guidance.models.OpenAI)
    with guidance.assistant():
        lm += guidance.regex("[0-9]{2}", name="answer")
    assert lm["answer"].isdigit()


@row("VLLM model class (regex)")
def _() -> None:
    lm = started(guidance.models.experimental.VLLMModel)
    with guidance.assistant():
        lm += guidance.regex("[0-9]{2}", name="answer")
    assert lm["answer"].isdigit()


@row("VLLM model class (grammar)")
def _() -> None:
    lm = started(guidance.models.experimental.VLLMModel)
    with guidance.assistant():
        lm += guidance.select(["yes", "no"], name="answer")
    assert lm["answer"] in ("yes", "no")


if __name__ == "__main__":
    main()
