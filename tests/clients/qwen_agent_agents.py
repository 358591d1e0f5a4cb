"""Qwen-Agent: a model for OpenAI's API and agents, with its own and the server's tool calls."""

# packages: qwen-agent==0.0.34 soundfile tqdm python-dateutil

from __future__ import annotations

import json
from typing import Any

from qwen_agent.agents import Assistant, FnCallAgent
from qwen_agent.llm import get_chat_model
from qwen_agent.tools.base import BaseTool, register_tool
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

HELLO = "Hello! How can I help you today?"
GREETING = [{"role": "user", "content": "Hi."}]
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS
}  # fmt: skip


@register_tool("get_weather")
class GetWeather(BaseTool):
    """A tool as the package's documents declare one."""

    description = "The weather of a city."
    parameters = PARAMETERS

    def call(self, params: str, **_: Any) -> str:
        return f"18 degrees in {json.loads(params)['city']}"


def settings(model: str = SCRIPTED, url: str = SCRIPTED_URL, **more: Any) -> dict[str, Any]:
    return {"model": model, "model_server": f"{url}/v1", "api_key": "EMPTY", "generate_cfg": more}


@row("chat")
def _() -> None:
    [*_, last] = get_chat_model(settings()).chat(messages=GREETING)
    assert last[-1]["content"] == HELLO


@row("chat without a stream")
def _() -> None:
    llm = get_chat_model(settings(CHAT, URL, top_p=0.8, max_tokens=8))
    assert llm.chat(messages=GREETING, stream=False)[-1]["content"]


@row("a stream of differences")
def _() -> None:
    parts = get_chat_model(settings()).chat(messages=GREETING, stream=True, delta_stream=True)
    assert "".join(one[-1]["content"] for one in parts) == HELLO


for _form, _raw in (("its own template", False), ("the server's tool calls", True)):

    @row(f"functions by {_form}")
    def _(raw: bool = _raw) -> None:
        llm = get_chat_model(settings(use_raw_api=raw))
        [*_, last] = llm.chat(messages=PARIS, functions=[WEATHER])
        call = last[-1]["function_call"]
        assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"})

    for _kind in (Assistant, FnCallAgent):

        @row(f"{_kind.__name__} by {_form}")
        def _(kind: Any = _kind, raw: bool = _raw) -> None:
            agent = kind(llm=settings(use_raw_api=raw), function_list=["get_weather"])
            [*_, last] = agent.run(messages=PARIS)
            assert last[-1]["content"] == "It is 18 degrees in Paris."


if __name__ == "__main__":
    main()
