"""huggingface_hub: its InferenceClient with a base URL, which sends some forms of its own."""

# packages: huggingface_hub==2.4.0 pydantic

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

os.environ.pop("HF_HUB_OFFLINE", None)  # with it the client refuses every address

from huggingface_hub import AsyncInferenceClient, InferenceClient
from pydantic import BaseModel
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

HELLO: Any = [{"role": "user", "content": "Say hello."}]
client = InferenceClient(base_url=URL, api_key="none")
scripted = InferenceClient(base_url=SCRIPTED_URL, api_key="none")


class Person(BaseModel):
    """A person."""

    name: Literal["Tom", "Ann"]
    age: Literal[30, 40]


@row("chat_completion")
def _() -> None:
    found = client.chat_completion(HELLO, model=CHAT, max_tokens=8)
    assert found.choices[0].message.content


@row("chat_completion, stream")
def _() -> None:
    chunks = client.chat_completion(HELLO, model=CHAT, max_tokens=8, stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)


@row("without a model: the client sends a name of its own")
def _() -> None:
    assert scripted.chat.completions.create(messages=HELLO).choices[0].message.content


@row("response_format with a schema, which the client puts into `value`")
def _() -> None:
    schema: Any = {"name": "Person", "schema": Person.model_json_schema()}
    form: Any = {"type": "json_schema", "json_schema": schema}
    found = client.chat_completion(HELLO, model=CHAT, max_tokens=60, response_format=form)
    assert Person.model_validate_json(found.choices[0].message.content or "")


@row("tools")
def _() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    (call,) = (
        scripted.chat_completion(asked, model=SCRIPTED, tools=[tool]).choices[0].message.tool_calls
        or ()
    )
    assert call.function.name == "get_weather"


@row("AsyncInferenceClient")
def _() -> None:
    async def ask() -> str:
        async with AsyncInferenceClient(base_url=URL, api_key="none") as other:
            found = await other.chat_completion(HELLO, model=CHAT, max_tokens=8)
            return found.choices[0].message.content or ""

    assert asyncio.run(ask())


if __name__ == "__main__":
    main()
