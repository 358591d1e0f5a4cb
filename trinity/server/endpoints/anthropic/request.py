"""The bodies of POST /v1/messages and its count_tokens, and the conversation that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trinity.server.endpoints.messages import Schema, SchemaForm
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob
from trinity.server.schemas import Body, encode
from trinity.server.structured import format_options
from trinity.server.thinking import NONE, SOME

FAILED = "Error: "  # before what a tool gave that failed: templates have no other word for it


class CacheControl(Body):
    """Where a prompt is worth keeping. Every prompt is kept, for as long as there is room."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class TextBlock(Body, tag_field="type", tag="text"):
    """A text."""

    text: str
    cache_control: CacheControl | None = None
    citations: list[None] | None = None


class OnlyText(Body):
    """A text where nothing else may be."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: list[None] | None = None


class ThinkingBlock(Body, tag_field="type", tag="thinking"):
    """What the model thought before an earlier answer."""

    thinking: str
    signature: str | None = None


class ToolUseBlock(Body, tag_field="type", tag="tool_use"):
    """A call of an earlier answer."""

    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ToolResultBlock(Body, tag_field="type", tag="tool_result"):
    """What a call gave."""

    tool_use_id: str
    content: str | list[OnlyText] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None

    @property
    def text(self) -> str:
        """What is told of it."""
        return (FAILED if self.is_error else "") + text_of(self.content or "")


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock


class AnthropicMessage(Body):
    """A message, or several: results of tools are messages of their own for chat templates."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class AnthropicTool(Body):
    """A function that may be called; ``input_schema`` is the JSON schema of its arguments."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None  # arguments always come while they are made
    defer_loading: Literal[False] | None = None
    allowed_callers: list[Literal["direct"]] | None = None

    def as_template_has_it(self) -> dict[str, Any]:
        """The tool as chat templates know it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.input_schema
        if self.strict is not None:
            function["strict"] = self.strict
        return {"type": "function", "function": function}


class Auto(Body, tag_field="type", tag="auto"):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class AnyTool(Body, tag_field="type", tag="any"):
    """Some tool must be called."""

    disable_parallel_tool_use: bool | None = None


class OneTool(Body, tag_field="type", tag="tool"):
    """This tool must be called."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoTool(Body, tag_field="type", tag="none"):
    """No tool may be called."""


class ThinkingEnabled(Body, tag_field="type", tag="enabled"):
    """The model thinks, if it can, in ``budget_tokens`` at most.

    As in llama.cpp's server and Ollama: programs ask it of every model.
    """

    budget_tokens: Annotated[int, Meta(ge=1)]
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(Body, tag_field="type", tag="adaptive"):
    """The model thinks as much as it likes."""

    display: Literal["summarized", "omitted"] | None = None


class ThinkingDisabled(Body, tag_field="type", tag="disabled"):
    """The model does not think."""


class SchemaOutput(Body):
    """The answer is JSON that a schema allows."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Body):
    """How hard the model tries, and the form of its answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: SchemaOutput | None = None


class Metadata(Body):
    """Who asks, which changes nothing."""

    user_id: str | None = None


class CountRequest(Body, kw_only=True):
    """The body of POST /v1/messages/count_tokens."""

    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    model: str | None = None
    system: str | list[OnlyText] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: Auto | AnyTool | OneTool | NoTool | None = None
    thinking: ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None

    def job(self, options: dict[str, Any] | None = None, *, whole: bool = False) -> ChatJob:
        """What the service runs. Raises: ApiError where parameters contradict each other."""
        messages: list[dict[str, Any]] = []
        if self.system is not None:
            messages.append({"role": "system", "content": text_of(self.system)})
        for number, message in enumerate(self.messages):
            messages += messages_of(message, f"messages[{number}]")
        if self.messages[-1].role == "assistant":
            raise ApiError(
                400, "messages: the last one is the assistant's; the beginning of an answer cannot "
                "be given", "messages",
            )  # fmt: skip
        choice, word = self.tool_choice, "auto"
        if isinstance(choice, OneTool):
            word = choice.name
            if word not in {tool.name for tool in self.tools or ()}:
                raise ApiError(400, f"tool_choice names {word!r:.80}, no tool does", "tool_choice")
        elif choice is not None:
            word = {Auto: "auto", AnyTool: "required", NoTool: "none"}[type(choice)]
        disabled = getattr(choice, "disable_parallel_tool_use", None)
        return ChatJob(
            messages,
            {**(options or {}), **self._format()},
            [tool.as_template_has_it() for tool in self.tools or ()],
            word,
            None if disabled is None else not disabled,
            whole=whole,
            effort=self._effort(),
            effort_param="thinking" if self.thinking else "output_config.effort",
            reasoning_budget=getattr(self.thinking, "budget_tokens", None),
            thinks_if_able=isinstance(self.thinking, ThinkingEnabled),
        )

    def _format(self) -> dict[str, Any]:
        form = None if self.output_config is None else self.output_config.format
        if form is None:
            return {}
        named = Schema(name="output", schema=form.schema, strict=True)
        return format_options(SchemaForm(json_schema=named), "output_config.format.schema")

    def _effort(self) -> str | None:
        """How much the model thinks; a degree alone asks for thinking, too."""
        if isinstance(self.thinking, ThinkingDisabled):
            return NONE
        degree = None if self.output_config is None else self.output_config.effort
        return degree or (SOME if isinstance(self.thinking, ThinkingEnabled) else None)


class MessagesRequest(CountRequest, kw_only=True):
    """The body of POST /v1/messages."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop_sequences: list[Annotated[str, Meta(min_length=1)]] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    speed: Literal["standard"] | None = None

    @property
    def shows_thinking(self) -> bool:
        """Whether what the model thinks is in the answer."""
        return getattr(self.thinking, "display", None) != "omitted"

    def whole_job(self) -> ChatJob:
        """What the service runs, with the options of an answer. Raises: as ``job``."""
        thinking = self.thinking
        if isinstance(thinking, ThinkingEnabled) and thinking.budget_tokens >= self.max_tokens:
            raise ApiError(
                400,
                f"thinking.budget_tokens is {thinking.budget_tokens}; it must be less than "
                f"max_tokens, which is {self.max_tokens}",
                "thinking.budget_tokens",
            )
        given = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "stop": self.stop_sequences,
        }
        options = {name: value for name, value in given.items() if value is not None}
        return self.job(options, whole=not self.stream)


def text_of(content: str | Sequence[TextBlock | OnlyText]) -> str:
    """A text, or several as one."""
    return content if isinstance(content, str) else "\n".join(block.text for block in content)


def messages_of(message: AnthropicMessage, place: str) -> list[dict[str, Any]]:
    """A message as chat templates know it. Raises: ApiError for a block in the wrong place."""
    content = message.content
    if isinstance(content, str):
        return [{"role": message.role, "content": content}]
    kinds: tuple[type[msgspec.Struct], ...] = (TextBlock,)
    if message.role == "assistant":
        kinds = (TextBlock, ThinkingBlock, ToolUseBlock)
    elif message.role == "user":
        kinds = (TextBlock, ToolResultBlock)
    for number, block in enumerate(content):
        if not isinstance(block, kinds):
            tag = block.__struct_config__.tag
            where = f"{place}.content[{number}]"
            raise ApiError(400, f"{where}: {tag} is no part of a {message.role} message", where)
    return _answered(content) if message.role == "assistant" else _asked(message.role, content)


def _asked(role: str, content: Sequence[Block]) -> list[dict[str, Any]]:
    """Results of tools, and texts between them."""
    found: list[dict[str, Any]] = []
    texts: list[TextBlock] = []
    for block in content:
        if isinstance(block, TextBlock):
            texts.append(block)
        elif isinstance(block, ToolResultBlock):
            if texts:
                found.append({"role": role, "content": text_of(texts)})
                texts = []
            found.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": block.text})
    if texts or not found:
        found.append({"role": role, "content": text_of(texts)})
    return found


def _answered(content: Sequence[Block]) -> list[dict[str, Any]]:
    texts = [block for block in content if isinstance(block, TextBlock)]
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": encode(block.input).decode()},
        }
        for block in content
        if isinstance(block, ToolUseBlock)
    ]
    thought = [block.thinking for block in content if isinstance(block, ThinkingBlock)]
    found: dict[str, Any] = {"role": "assistant", "content": text_of(texts) if texts else None}
    if not texts and not calls:
        found["content"] = ""
    if thought:
        found["reasoning_content"] = "\n".join(thought)
    if calls:
        found["tool_calls"] = calls
    return [found]
