"""instructor: structured output in its modes."""

# packages: instructor==1.17.0

from __future__ import annotations

from itertools import islice
from typing import Any, Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

ASK: Any = [{"role": "user", "content": "Invent a person."}]


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


def ask(mode: instructor.Mode, **more: Any) -> Any:
    with OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
        made = instructor.from_openai(client, mode=mode)
        return made.create(model=CHAT, messages=ASK, response_model=Person, max_retries=0, **more)


for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"):
    row(f"openai mode {mode}")(lambda mode=mode: ask(instructor.Mode[mode], max_tokens=100).age)


def unconstrained(mode: instructor.Mode) -> None:
    """A mode that asks for JSON in the prompt, which SmolLM2 is too small to follow."""
    asked: Any = [{"role": "user", "content": "A Person called Ann as JSON, please."}]
    with OpenAI(base_url=f"{SCRIPTED_URL}/v1", api_key="none", max_retries=0) as client:
        made = instructor.from_openai(client, mode=mode)
        found = made.create(model=SCRIPTED, messages=asked, response_model=Person, max_retries=0)
    assert (found.name, found.age) == ("Ann", 40)


for mode in ("JSON", "MD_JSON"):
    row(f"openai mode {mode}")(lambda mode=mode: unconstrained(instructor.Mode[mode]))


@row("openai mode RESPONSES_TOOLS")
def _() -> None:
    assert ask(instructor.Mode.RESPONSES_TOOLS, max_output_tokens=100).age in (30, 40)


@row("create_partial stream (JSON_SCHEMA)")
def _() -> None:
    with OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
        made = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
        found = list(
            made.create_partial(model=CHAT, messages=ASK, response_model=Person, max_tokens=100)
        )
    assert found[-1].age in (30, 40)


@row("create_iterable")
def _() -> None:
    """The small model repeats itself, so only the first ones are taken."""
    with OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as client:
        made = instructor.from_openai(client)
        people = made.create_iterable(
            model=CHAT, messages=ASK, response_model=Person, max_tokens=200
        )
        found = list(islice(people, 2))
    assert found
    assert all(person.age in (30, 40) for person in found)


@row("from_provider ollama/")
def _() -> None:
    made = instructor.from_provider(
        f"ollama/{CHAT}", base_url=f"{URL}/v1", mode=instructor.Mode.JSON_SCHEMA
    )
    found = made.create(messages=ASK, response_model=Person, max_retries=0, max_tokens=100)
    assert found.age in (30, 40)


if __name__ == "__main__":
    main()
