"""The bodies of POST /v1/messages and count_tokens, and their conversion to a ``ChatJob``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.anthropic.blocks import (
    AnthropicMessage,
    CacheControl,
    TextBlock,
    conversation_of,
    text_of,
)
from trinity.server.endpoints.anthropic.tools import AnthropicTool, functions_of
from trinity.server.endpoints.formats import format_options
from trinity.server.endpoints.messages import Schema, SchemaForm
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.job import ChatJob
from trinity.server.schemas import Body
from trinity.server.thinking import NONE, SOME

BILLING = "x-anthropic-billing-header:"
Display = Ignorable[Literal["summarized", "omitted"] | None]


class Auto(Body, tag_field="type", tag="auto"):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class AnyTool(Body, tag_field="type", tag="any"):
    """The model must call a tool."""

    disable_parallel_tool_use: bool | None = None


class OneTool(Body, tag_field="type", tag="tool"):
    """The model must call this tool."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoTool(Body, tag_field="type", tag="none"):
    """The model must not call a tool."""


class ThinkingEnabled(Body, tag_field="type", tag="enabled"):
    """The model thinks for at most ``budget_tokens`` tokens.

    Models that cannot think ignore it, as in llama.cpp's server: clients send it to every model.
    """

    budget_tokens: Annotated[int, Meta(ge=1)]
    display: Display = None


class ThinkingAdaptive(Body, tag_field="type", tag="adaptive"):
    """The model thinks without a budget."""

    display: Display = None


class ThinkingBetweenTools(Body, tag_field="type", tag="between_tools"):
    """The model thinks without a budget and decides itself when."""


class ThinkingDisabled(Body, tag_field="type", tag="disabled"):
    """The model does not think."""


Thinking = ThinkingEnabled | ThinkingAdaptive | ThinkingBetweenTools | ThinkingDisabled


class SchemaOutput(Body):
    """The response is JSON that matches a schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Body):
    """The reasoning effort and the format of the response."""

    effort: Ignorable[Literal["low", "medium", "high", "xhigh", "max"] | None] = None
    format: SchemaOutput | None = None


class Metadata(Body):
    """The end user's id; it has no effect."""

    user_id: str | None = None


class CountRequest(Body, kw_only=True):
    """The body of POST /v1/messages/count_tokens."""

    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    model: str | None = None
    system: str | list[TextBlock] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: Auto | AnyTool | OneTool | NoTool | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: SchemaOutput | None = None  # the older name of output_config.format
    cache_control: CacheControl = None
    mcp_servers: Ignorable[Annotated[list[Any], Meta(max_length=0)] | None] = None

    def job(
        self, ignored: Ignored, options: dict[str, Any] | None = None, *, whole: bool = False
    ) -> ChatJob:
        """Return the job; if the last message is the assistant's, its text is continued.

        Raises: ApiError if parameters contradict each other.
        """
        messages: list[dict[str, Any]] = []
        if self.system is not None:
            messages.append({"role": "system", "content": self._system(ignored)})
        messages += conversation_of(ignored, self.messages)
        begun = self._begun(messages[-1])
        tools = functions_of(ignored, self.tools)
        disabled = getattr(self.tool_choice, "disable_parallel_tool_use", None)
        effort = self._effort()
        return ChatJob(
            messages,
            {**(options or {}), **self._format()},
            tools,
            self._choice({tool["function"]["name"] for tool in tools}),
            None if disabled is None else not disabled,
            whole=whole,
            effort=NONE if begun and effort is None else effort,
            effort_param="thinking" if self._degree is None else "output_config.effort",
            reasoning_budget=getattr(self.thinking, "budget_tokens", None),
            continues=begun,
        )

    def _system(self, ignored: Ignored) -> str:
        """Return the system prompt without Claude Code's billing header, its first block.

        It contains the client's version, so each version would need its own cached prompt.
        """
        if self.system is None or isinstance(self.system, str):
            return self.system or ""
        kept = []
        for number, block in enumerate(self.system):
            if block.text.startswith(BILLING):
                ignored.add(f"system[{number}]")
            else:
                kept.append(block)
        return text_of(kept)

    @property
    def _degree(self) -> str | None:
        return None if self.output_config is None else self.output_config.effort

    def _begun(self, last: dict[str, Any]) -> bool:
        """Whether the response continues the last message. Raises: ApiError for a call in it."""
        if last["role"] != "assistant":
            return False
        if "tool_calls" in last:
            where = f"messages[{len(self.messages) - 1}]"
            raise ApiError(400, f"{where}: the last message has tool_use without a result", where)
        if len(self.messages) == 1:
            raise ApiError(
                400,
                "the only message is the assistant's; there must be a message before it",
                "messages",
            )
        return True

    def _choice(self, names: set[str]) -> str:
        """Return ``ChatJob.tool_choice``. Raises: ApiError for a forced tool that is not given."""
        choice = self.tool_choice
        if isinstance(choice, OneTool):
            if choice.name not in names:
                raise ApiError(
                    400,
                    f"tool_choice names {choice.name!r:.80}, which is not one of the tools",
                    "tool_choice",
                )
            return choice.name
        if isinstance(choice, AnyTool):
            if self.tools and not names:
                raise ApiError(
                    400,
                    "tool_choice requires a call, but the request has only tools that run on "
                    "Anthropic's servers",
                    "tool_choice",
                )
            return "required"
        return "none" if isinstance(choice, NoTool) else "auto"

    def _format(self) -> dict[str, Any]:
        form = None if self.output_config is None else self.output_config.format
        form = form or self.output_format
        if form is None:
            return {}
        named = Schema(name="output", schema=form.schema, strict=True)
        return format_options(SchemaForm(json_schema=named), "output_config.format.schema")

    def _effort(self) -> str | None:
        """Return the reasoning effort; an effort without ``thinking`` also turns thinking on."""
        if isinstance(self.thinking, ThinkingDisabled):
            return NONE
        return self._degree or (SOME if isinstance(self.thinking, ThinkingEnabled) else None)


class MessagesRequest(CountRequest, kw_only=True):
    """The body of POST /v1/messages."""

    max_tokens: Annotated[int, Meta(ge=1)] = 4096  # llama.cpp's default; Anthropic has none
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop_sequences: list[Annotated[str, Meta(min_length=1)]] | None = None
    metadata: Ignorable[Metadata | None] = None
    service_tier: Ignorable[Literal["auto", "standard_only"] | None] = None
    speed: Ignorable[Literal["standard"] | None] = None

    @property
    def shows_thinking(self) -> bool:
        """Whether the response contains the reasoning."""
        return getattr(self.thinking, "display", None) != "omitted"

    def whole_job(self, ignored: Ignored) -> ChatJob:
        """Return the job with its generation options. Raises: as ``job``."""
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
            "top_k": None if self.top_k == -1 else self.top_k,
            "top_p": self.top_p,
            "stop": self.stop_sequences,
        }
        options = {name: value for name, value in given.items() if value is not None}
        return self.job(ignored, options, whole=not self.stream)
