"""The body of POST /v1/responses, and the conversation that it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.messages import (
    Effort,
    ObjectForm,
    ResponseFormat,
    Schema,
    SchemaForm,
    TextForm,
)
from trinity.server.endpoints.responses.items import messages_of
from trinity.server.errors import ApiError
from trinity.server.job import ChatJob
from trinity.server.schemas import Body
from trinity.server.structured import format_options

LOGPROBS = "message.output_text.logprobs"
REASONING = "reasoning.encrypted_content"


class FunctionTool(Body):
    """A function that may be called; the only kind of tool that there is."""

    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None
    # Only what says that there is nothing special about it.
    defer_loading: Literal[False] | None = None
    allowed_callers: list[Literal["direct"]] | None = None

    def as_template_has_it(self) -> dict[str, Any]:
        """The tool as chat templates know it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = self.parameters or {"type": "object", "properties": {}}
        if self.strict is not None:
            function["strict"] = self.strict
        return {"type": "function", "function": function}


class FunctionChoice(Body, tag_field="type", tag="function"):
    """The one function to call."""

    name: str


class AllowedFunction(Body):
    """The name of a function that may be called."""

    type: Literal["function"]
    name: str


class AllowedTools(Body, tag_field="type", tag="allowed_tools"):
    """Those of the tools that may be called this time, and whether one must be."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedFunction], Meta(min_length=1)]


class JsonSchemaFormat(Body, tag_field="type", tag="json_schema"):
    """JSON that a schema allows."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class TextConfig(Body):
    """The form of the text."""

    format: TextForm | ObjectForm | JsonSchemaFormat | None = None
    verbosity: Literal["medium"] | None = None

    def response_format(self) -> ResponseFormat | None:
        """The form as chat completions say it."""
        form = self.format
        if isinstance(form, JsonSchemaFormat):
            named = Schema(
                name=form.name, schema=form.schema, description=form.description, strict=form.strict
            )
            return SchemaForm(json_schema=named)
        return form


class ReasoningConfig(Body):
    """How much the model thinks. What it thinks comes whole, so no other summary can be had."""

    effort: Effort | Literal["max"] | None = None
    summary: Literal["auto"] | None = None
    generate_summary: Literal["auto"] | None = None


class ResponsesStreamOptions(Body):
    """Nothing is added to hide the sizes of a stream's pieces."""

    include_obfuscation: Literal[False] | None = None


class ResponsesRequest(Body):
    """The body of POST /v1/responses.

    Nothing is kept of a response: ``store`` is false whatever is left out, and what refers to an
    earlier response is refused. ``metadata``, ``user``, ``safety_identifier`` and
    ``prompt_cache_key`` come back in the response and change nothing else: prompts are shared
    without a key. ``max_tool_calls`` is about tools that run here, of which there are none.
    """

    input: str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = (
        None
    )
    text: TextConfig | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    store: Literal[False] | None = None
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    service_tier: Literal["auto", "default"] | None = None
    metadata: dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]] | (
        None
    ) = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory"] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    # Beyond OpenAI's: what the engine has beside them, and llama.cpp's figures.
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities are asked for, by either parameter."""
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    def job(self) -> ChatJob:
        """What the service runs. Raises: ApiError where parameters contradict each other."""
        for name in ("previous_response_id", "conversation"):
            if getattr(self, name) is not None:
                raise ApiError(
                    400,
                    f"{name}: this server keeps no responses; send the whole conversation as input",
                    name,
                )
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream: true", "stream_options")
        if self.return_progress and not self.stream:
            raise ApiError(400, "return_progress needs stream: true", "return_progress")
        if self.metadata is not None and len(self.metadata) > 16:
            raise ApiError(400, "metadata has more than 16 keys", "metadata")
        messages = messages_of(self.input)
        if self.instructions is not None:
            messages.insert(0, {"role": "system", "content": self.instructions})
        tools, choice = self._tools()
        return ChatJob(
            messages,
            self._options(),
            tools,
            choice,
            self.parallel_tool_calls,
            variables=self.chat_template_kwargs or {},
            effort=None if self.reasoning is None else self.reasoning.effort,
            effort_param="reasoning.effort",
        )

    def _options(self) -> dict[str, Any]:
        given = {
            name: getattr(self, name)
            for name in ("temperature", "top_p", "top_k", "min_p", "seed", "stop")
        }
        given["max_tokens"] = self.max_output_tokens
        if self.wants_logprobs:
            given["logprobs"] = self.top_logprobs or 0
        if self.stream and (self.return_progress or self.timings_per_token):
            given["progress"] = True
        options = {name: value for name, value in given.items() if value is not None}
        form = None if self.text is None else self.text.response_format()
        return options | format_options(form, "text.format.schema")

    def _tools(self) -> tuple[list[dict[str, Any]], str]:
        """The tools that may be called, and the choice among them as a ChatJob has it."""
        tools, choice = self.tools or [], self.tool_choice
        names = {tool.name for tool in tools}
        wanted = [choice.name] if isinstance(choice, FunctionChoice) else []
        if isinstance(choice, AllowedTools):
            wanted = [tool.name for tool in choice.tools]
            tools = [tool for tool in tools if tool.name in wanted]
        for name in wanted:
            if name not in names:
                raise ApiError(400, f"tool_choice names {name!r:.80}, no tool does", "tool_choice")
        word: str = choice.mode if isinstance(choice, AllowedTools) else "auto"
        if not isinstance(choice, AllowedTools) and choice is not None:
            word = choice.name if isinstance(choice, FunctionChoice) else choice
        return [tool.as_template_has_it() for tool in tools], word
