"""pipecat: pipelines with its services for OpenAI's two APIs, by WebSocket and HTTP, and Ollama."""

# packages: pipecat-ai[openai]==1.14.0

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineTask
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.services.ollama.llm import OLLamaLLMService
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.responses.llm import (
    OpenAIResponsesHttpLLMService,
    OpenAIResponsesLLMService,
)
from rows import SCRIPTED, SCRIPTED_URL, main, row

HELLO = "Hello! How can I help you today?"
PARIS = "What is the weather in Paris?"
MOST_SECONDS = 100.0
TOOLS = ToolsSchema(
    standard_tools=[
        FunctionSchema(
            name="get_weather", description="The weather of a city.",
            properties={"city": {"type": "string"}}, required=["city"],
        )
    ]
)  # fmt: skip
Make = Callable[[str, str], LLMService[Any]]


def by_websocket(url: str, model: str) -> LLMService[Any]:
    return OpenAIResponsesLLMService(
        api_key="none", base_url=f"{url}/v1", ws_url=f"{url.replace('http', 'ws')}/v1/responses",
        settings=OpenAIResponsesLLMService.Settings(model=model),
    )  # fmt: skip


SERVICES: dict[str, Make] = {
    "chat completions": lambda url, model: OpenAILLMService(
        api_key="none", base_url=f"{url}/v1", settings=OpenAILLMService.Settings(model=model)
    ),
    "Ollama": lambda url, model: OLLamaLLMService(
        base_url=f"{url}/v1", settings=OLLamaLLMService.Settings(model=model)
    ),
    "responses": by_websocket,
    "responses by HTTP": lambda url, model: OpenAIResponsesHttpLLMService(
        api_key="none", base_url=f"{url}/v1",
        settings=OpenAIResponsesHttpLLMService.Settings(model=model),
    ),
}  # fmt: skip


class Sink(FrameProcessor):
    """Collects what a service says."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.errors = "", list[ErrorFrame]()
        self.ended = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self.text += frame.text
        if isinstance(frame, ErrorFrame):
            self.errors.append(frame)
        if isinstance(frame, LLMFullResponseEndFrame) and self.text:
            self.ended.set()
        await self.push_frame(frame, direction)


async def conversation(
    service: LLMService[Any], drive: Callable[[PipelineTask, Sink], Coroutine[Any, Any, None]],
    text: str,
) -> tuple[Sink, list[Any]]:  # fmt: skip
    """Run a pipeline while ``drive`` sends it frames; what was said, and calls of the tool."""
    called: list[Any] = []

    async def get_weather(params: Any) -> None:
        called.append(params.arguments)
        await params.result_callback({"weather": f"18 degrees in {params.arguments['city']}"})

    service.register_function("get_weather", get_weather)
    messages: Any = [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": text},
    ]  # fmt: skip
    context = LLMContext(messages=messages, tools=TOOLS)
    pair, sink = LLMContextAggregatorPair(context), Sink()
    task = PipelineTask(Pipeline([pair.user(), service, sink, pair.assistant()]))

    async def driven() -> None:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await task.queue_frames([LLMRunFrame()])
                await drive(task, sink)
        finally:
            await task.queue_frames([EndFrame()])

    await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), driven())
    assert not sink.errors, sink.errors
    return sink, called


async def once(task: PipelineTask, sink: Sink) -> None:
    await sink.ended.wait()


async def twice(task: PipelineTask, sink: Sink) -> None:
    await sink.ended.wait()
    sink.ended.clear()
    message: Any = {"role": "user", "content": "Hello again."}
    await task.queue_frames([LLMMessagesAppendFrame([message], run_llm=True)])
    await sink.ended.wait()


for _name, _make in SERVICES.items():

    @row(f"{_name}: a response")
    def _(make: Make = _make) -> None:
        sink, _ = asyncio.run(conversation(make(SCRIPTED_URL, SCRIPTED), once, "Hi."))
        assert sink.text == HELLO

    @row(f"{_name}: two turns")
    def _(make: Make = _make) -> None:
        sink, _ = asyncio.run(conversation(make(SCRIPTED_URL, SCRIPTED), twice, "Hi."))
        assert sink.text == HELLO * 2

    @row(f"{_name}: a tool call")
    def _(make: Make = _make) -> None:
        sink, called = asyncio.run(conversation(make(SCRIPTED_URL, SCRIPTED), once, PARIS))
        assert called == [{"city": "Paris"}]
        assert sink.text == "It is 18 degrees in Paris."

    @row(f"{_name}: run_inference with a schema")
    def _(make: Make = _make) -> None:
        schema = {"type": "object", "properties": {"name": {"type": "string"},
                  "age": {"type": "number"}}, "required": ["name", "age"],
                  "additionalProperties": False}  # fmt: skip
        asked: Any = [{"role": "user", "content": "A Person called Ann as JSON, please."}]
        service = make(SCRIPTED_URL, SCRIPTED)
        found = asyncio.run(
            service.run_inference(LLMContext(messages=asked), response_schema=schema)
        )
        assert json.loads(found or "") == {"name": "Ann", "age": 40}


if __name__ == "__main__":
    main()
