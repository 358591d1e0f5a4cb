"""inspect-ai: evaluations by its providers for OpenAI, Anthropic, Ollama, vLLM and SGLang."""

# packages: inspect-ai==0.3.285 openai==3.57.0 anthropic==2.14.0

from __future__ import annotations

import os
import tempfile
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool
from rows import CHAT, SCRIPTED, SCRIPTED_URL, URL, main, row

PATHS = {
    "openai": "/v1", "openai-api/trinity": "/v1", "ollama": "/v1", "vllm": "/v1", "sglang": "/v1",
    "anthropic": "",
}  # fmt: skip
for name in ("TRINITY", "OPENAI", "ANTHROPIC", "VLLM", "SGLANG"):
    os.environ[f"{name}_API_KEY"] = "none"
os.environ["INSPECT_LOG_DIR"] = tempfile.mkdtemp()


@tool
def get_weather() -> Tool:
    async def execute(city: str) -> str:
        """The weather of a city.

        Args:
            city: The name of the city.
        """
        return f"18 degrees in {city}"

    return execute


def evaluated(model: str, url: str, asked: Sample, solver: Any, **more: Any) -> EvalLog:
    task = Task(dataset=[asked], solver=solver, scorer=includes())
    (log,) = eval(task, model=model, model_base_url=url, display="none", **more)
    assert log.status == "success", log.error and log.error.message
    return log


def accuracy(log: EvalLog) -> float:
    return float(log.results.scores[0].metrics["accuracy"].value)


def chat(provider: str) -> None:
    asked = Sample(input="Say hello.", target="How can I help you today?")
    log = evaluated(f"{provider}/{SCRIPTED}", SCRIPTED_URL + PATHS[provider], asked, generate())
    assert accuracy(log) == 1


def tools(provider: str) -> None:
    asked = Sample(input="What is the weather in Paris?", target="It is 18 degrees in Paris.")
    solver = [use_tools(get_weather()), generate()]
    log = evaluated(f"{provider}/{SCRIPTED}", SCRIPTED_URL + PATHS[provider], asked, solver)
    assert accuracy(log) == 1


def options(provider: str) -> None:
    settings = {"max_tokens": 12, "temperature": 0.2, "top_p": 0.9, "seed": 1, "stop_seqs": ["zzz"]}
    if provider != "anthropic":
        settings["logprobs"] = True
    asked = Sample(input="Hi.", target="e")
    log = evaluated(f"{provider}/{CHAT}", URL + PATHS[provider], asked, generate(), **settings)
    assert log.samples[0].output.completion


for one in PATHS:
    for call in (chat, tools, options):
        row(f"{one} {call.__name__}")(lambda one=one, call=call: call(one))

if __name__ == "__main__":
    main()
