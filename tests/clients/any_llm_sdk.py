"""any-llm, Mozilla's library: its providers for OpenAI's, Ollama's, Anthropic's and other APIs."""

# packages: any-llm-sdk[ollama,openai,anthropic,llamacpp,llamafile,vllm]==1.40.2

from __future__ import annotations

from typing import Any

from any_llm import completion, embedding
from pydantic import BaseModel
from rows import CHAT, EMBEDDER, SCRIPTED, SCRIPTED_URL, URL, main, row

PATHS = {
    "openai": "/v1", "ollama": "", "anthropic": "", "llamacpp": "/v1", "llamafile": "/v1",
    "vllm": "/v1",
}  # fmt: skip
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    },
}  # fmt: skip


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def ask(provider: str, text: str, *, scripted: bool = True, **more: Any) -> Any:
    url, name = (SCRIPTED_URL, SCRIPTED) if scripted else (URL, CHAT)
    return completion(
        model=name, provider=provider, api_base=url + PATHS[provider], api_key="none",
        messages=[{"role": "user", "content": text}], **more,
    )  # fmt: skip


def chat(provider: str) -> None:
    found = ask(provider, "Say hello.", scripted=False, max_tokens=16)
    assert found.choices[0].message.content
    assert found.usage.completion_tokens > 0


def streamed(provider: str) -> None:
    pieces = ask(provider, "Say hello.", stream=True)
    text = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
    assert text == "Hello! How can I help you today?"


def tools(provider: str) -> None:
    found = ask(provider, "What is the weather in Paris?", tools=[TOOL])
    assert found.choices[0].message.tool_calls[0].function.name == "get_weather"


def structured(provider: str) -> None:
    found = ask(provider, "A Person called Ann as JSON, please.", response_format=Person)
    assert Person.model_validate_json(found.choices[0].message.content).name == "Ann"


for one in PATHS:
    for call in (chat, streamed, tools, structured):
        if one != "llamafile" or call not in (tools, structured):  # its class refuses these
            row(f"{one} {call.__name__}")(lambda one=one, call=call: call(one))

for one in ("openai", "ollama"):

    @row(f"{one} embedding")
    def embedded(one: str = one) -> None:
        found = embedding(
            model=EMBEDDER, provider=one, inputs="Hello", api_base=URL + PATHS[one], api_key="none"
        )
        assert len(found.data[0].embedding) == 384


if __name__ == "__main__":
    main()
