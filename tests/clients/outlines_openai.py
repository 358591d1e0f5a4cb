"""outlines: its OpenAI, vLLM and SGLang models."""

# packages: outlines==1.3.3 openai

from __future__ import annotations

from typing import Any, Literal

import outlines
from openai import OpenAI
from outlines.types import Regex
from pydantic import BaseModel
from rows import CHAT, URL, main, row

client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
ASK = "Invent a person."


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def check_person(model: Any, **more: Any) -> None:
    assert Person.model_validate_json(model(ASK, Person, max_tokens=60, **more))


@row("from_openai text")
def _() -> None:
    assert outlines.from_openai(client, CHAT)("Say hello.", max_tokens=6)


@row("from_openai pydantic")
def _() -> None:
    check_person(outlines.from_openai(client, CHAT))


@row("from_openai stream")
def _() -> None:
    assert "".join(outlines.from_openai(client, CHAT).stream("Say hello.", max_tokens=6))


@row("from_vllm pydantic")
def _() -> None:
    check_person(outlines.from_vllm(client, CHAT))


@row("from_vllm Literal")
def _() -> None:
    assert outlines.from_vllm(client, CHAT)("Yes?", Literal["yes", "no"]) in ("yes", "no")


@row("from_vllm regex")
def _() -> None:
    assert outlines.from_vllm(client, CHAT)("Count.", Regex("[0-9]{3}")).isdigit()


@row("from_vllm int")
def _() -> None:
    found = outlines.from_vllm(client, CHAT)("A number.", int, max_tokens=5)
    assert int(found) == float(found)


@row("from_sglang pydantic")
def _() -> None:
    check_person(outlines.from_sglang(client, CHAT))


if __name__ == "__main__":
    main()
