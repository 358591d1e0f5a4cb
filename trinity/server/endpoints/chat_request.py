"""The body of POST /v1/chat/completions, and the job that it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.formats.defaults import ChatTemplate
from trinity.server.endpoints.messages import Effort, Message, continued, messages_of
from trinity.server.endpoints.sampling import Sampling
from trinity.server.endpoints.tools import Toolbox, functions_box, toolbox
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.job import ChatJob
from trinity.server.schemas import Body


class ReasoningSettings(Body):
    """OpenRouter's form of ``reasoning_effort``."""

    effort: Ignorable[Effort | None] = None
    enabled: bool | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None


class ChatRequest(Sampling, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=-1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None  # OpenAI's older name of tools
    function_call: str | dict[str, Any] | None = None  # the older name of tool_choice
    parallel_tool_calls: bool | None = None
    reasoning_effort: Ignorable[Effort | None] = None
    reasoning: Ignorable[ReasoningSettings | None] = None
    # The budget of reasoning as in llama.cpp (two names), vLLM and Qwen's API.
    thinking_budget_tokens: Annotated[int, Meta(ge=-1)] | None = None
    reasoning_budget_tokens: Annotated[int, Meta(ge=-1)] | None = None
    thinking_token_budget: Annotated[int, Meta(ge=-1)] | None = None
    thinking_budget: Annotated[int, Meta(ge=-1)] | None = None
    reasoning_budget_message: str | None = None  # llama.cpp's: ends such reasoning
    enable_thinking: bool | None = None  # one of the chat_template_kwargs
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None  # vLLM's, for templates that have them
    chat_template: str | None = None  # vLLM's: Jinja2 that replaces the model's template
    modalities: list[Literal["text"]] | None = None
    store: Ignorable[Literal[False] | None] = None
    add_generation_prompt: bool | None = None  # vLLM's, like the next
    continue_final_message: bool | None = None
    # llama.cpp's three:
    reasoning_control: bool | None = None  # it can be ended by /v1/chat/completions/control
    reasoning_format: Ignorable[Literal["auto", "deepseek", "none"] | None] = None
    verbose: bool | None = None

    def box(self, ignored: Ignored) -> Toolbox:
        """The tools that may be called. Raises: ApiError."""
        older = self.functions or self.function_call
        if older and not self.tools:
            return functions_box(ignored, self.functions or (), self.function_call)
        if older:
            ignored.add("functions")
        return toolbox(ignored, self.tools, self.tool_choice)

    def job(self, ignored: Ignored, box: Toolbox, *, whole: bool) -> ChatJob:
        """Return the job. Raises: ApiError if parameters contradict each other."""
        options = self.options(ignored) | self.form_options(ignored)
        if self.max_completion_tokens is not None:
            most = self.max_completion_tokens if self.max_completion_tokens >= 0 else None
            if options.get("max_tokens", most) != most:
                raise ApiError(
                    400,
                    "max_tokens and max_completion_tokens differ; give one of them",
                    "max_tokens",
                )
            options["max_tokens"] = most
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs: true", "top_logprobs")
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        if self.stream_options is not None and not self.stream:
            ignored.add("stream_options")
        continues = continued(
            self.messages, self.add_generation_prompt, self.continue_final_message
        )
        effort, budget = self._effort()
        return ChatJob(
            messages_of(ignored, self.messages, continues=continues),
            options,
            box.functions,
            box.choice,
            False if box.single else self.parallel_tool_calls,
            self.count,
            self._variables(),
            whole,
            reasoning_budget=budget,
            budget_message=self.reasoning_budget_message or "",
            reasoning_control=bool(self.reasoning_control),
            effort=effort,
            template=self._template(),
            add_generation_prompt=self.add_generation_prompt is not False or continues,
            continues=continues,
        )

    def _effort(self) -> tuple[Effort | None, int | None]:
        """Return the reasoning effort and the token budget of reasoning. Raises: ApiError."""
        more = self.reasoning or ReasoningSettings()
        budgets = {
            "reasoning.max_tokens": more.max_tokens,
            "thinking_budget_tokens": self.thinking_budget_tokens,
            "reasoning_budget_tokens": self.reasoning_budget_tokens,
            "thinking_token_budget": self.thinking_token_budget,
            "thinking_budget": self.thinking_budget,
        }
        given = {name: most for name, most in budgets.items() if most is not None}
        if len(set(given.values())) > 1:
            raise ApiError(400, f"{' and '.join(given)} differ; give one of them", min(given))
        budget = next(iter(given.values()), -1)
        effort = self.reasoning_effort or more.effort or ("none" if more.enabled is False else None)
        return effort, budget if budget >= 0 else None

    def _template(self) -> ChatTemplate | None:
        return (
            ChatTemplate(self.chat_template, "jinja", "chat_template")
            if self.chat_template
            else None
        )

    def _variables(self) -> dict[str, Any]:
        named = {"enable_thinking": self.enable_thinking, "documents": self.documents or None}
        given = {name: value for name, value in named.items() if value is not None}
        return given | (self.chat_template_kwargs or {})
