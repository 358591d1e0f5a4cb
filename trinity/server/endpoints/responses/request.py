"""The body of POST /v1/responses and its conversion to a ``ChatJob``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from trinity.server.endpoints.formats import format_options, response_format_of
from trinity.server.endpoints.messages import Effort
from trinity.server.endpoints.responses.items import items_of, messages_of
from trinity.server.endpoints.sampling import LEAST_TOP_P, Penalty
from trinity.server.endpoints.tools import Toolbox, toolbox
from trinity.server.errors import ApiError
from trinity.server.ignored import Ignorable, Ignored
from trinity.server.job import ChatJob
from trinity.server.schemas import Body

LOGPROBS = "message.output_text.logprobs"
REASONING = "reasoning.encrypted_content"


class TextConfig(Body):
    """The format of the response's text."""

    format: dict[str, Any] | None = None
    verbosity: Ignorable[Literal["medium"] | None] = None


class ReasoningConfig(Body):
    """The reasoning effort. Reasoning is returned in full, so no summary is supported.

    ``max_tokens``: OpenRouter's budget of reasoning.
    """

    effort: Ignorable[Effort | Literal["max"] | None] = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    summary: Ignorable[Literal["auto"] | None] = None
    generate_summary: Ignorable[Literal["auto"] | None] = None


class ResponsesStreamOptions(Body):
    """Stream options; padding that hides the sizes of events is not supported."""

    include_obfuscation: Ignorable[Literal[False] | None] = None


# Parameters that have the engine's names.
PLAIN = (
    "temperature", "top_p", "top_k", "min_p", "seed", "cache_salt", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip


class ResponsesRequest(Body):
    """The body of POST /v1/responses.

    ``store`` keeps the response, unless it is false, for ``previous_response_id`` and the endpoints
    that read it. ``metadata``, ``user``, ``safety_identifier`` and ``prompt_cache_key`` come back
    in the response and change nothing else: prompts are shared without a key. ``cache_salt`` is
    vLLM's. ``max_tool_calls`` is about tools that run here, of which there are none. A
    ``background`` response is stored, and generated after the answer to its request; one that is
    streamed ends with its stream. ``truncation`` has no effect: what does not fit is refused.
    """

    input: str | list[dict[str, Any]] | None = None
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=-1)] | None = None
    max_tool_calls: Ignorable[Annotated[int, Meta(ge=1)] | None] = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[str] | None = None
    text: TextConfig | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    store: bool | None = None
    background: bool | None = None
    truncation: Ignorable[Literal["disabled"] | None] = None
    service_tier: Ignorable[Literal["auto", "default"] | None] = None
    metadata: Ignorable[
        dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]] | None
    ] = None
    user: Ignorable[str | None] = None
    safety_identifier: Ignorable[str | None] = None
    prompt_cache_key: Ignorable[str | None] = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    prompt_cache_retention: Ignorable[Literal["in_memory"] | None] = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    # Not in OpenAI's API: more of the engine's options, and llama.cpp's timings and progress.
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of ``input``."""
        return items_of(self.input)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the request asks for log-probabilities, by either parameter."""
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    def box(self, ignored: Ignored) -> Toolbox:
        """Return the tools of the request. Raises: ApiError."""
        return toolbox(ignored, self.tools, self.tool_choice)

    def job(
        self,
        ignored: Ignored,
        box: Toolbox,
        earlier: Sequence[dict[str, Any]] = (),
        items: Sequence[dict[str, Any]] | None = None,
    ) -> ChatJob:
        """Return the job that continues ``earlier`` items and the request's own.

        ``items``: its own, with references resolved. Raises: ApiError if parameters contradict each
        other, or name objects that are stored only on OpenAI's servers.
        """
        self._check(ignored)
        messages = messages_of(
            ignored, [*earlier, *(self.items if items is None else items)], len(earlier)
        )
        if not messages:
            raise ApiError(400, "input has no message to respond to", "input")
        if self.instructions is not None:
            messages.insert(0, {"role": "system", "content": self.instructions})
        return ChatJob(
            messages,
            self._options(ignored),
            box.functions,
            box.choice,
            self.parallel_tool_calls,
            variables=self.chat_template_kwargs or {},
            effort=None if self.reasoning is None else self.reasoning.effort,
            reasoning_budget=None if self.reasoning is None else self.reasoning.max_tokens,
            effort_param="reasoning.effort",
        )

    def _check(self, ignored: Ignored) -> None:
        """Raise ApiError for what is not supported; note what is ignored."""
        for name in ("conversation", "prompt"):
            if getattr(self, name) is not None:
                raise ApiError(
                    400, f"{name}: this server stores no {name}s; send its content as input", name
                )
        for name in ("stream_options", "return_progress"):
            if getattr(self, name) and not self.stream:
                ignored.add(name)
        if self.background and self.stream:
            ignored.add("background")
        elif self.background and self.store is False:
            raise ApiError(
                400, "background is true and store false; a response in the background is stored",
                "background",
            )  # fmt: skip
        if self.metadata is not None and len(self.metadata) > 16:
            raise ApiError(400, "metadata has more than 16 keys", "metadata")
        for number, name in enumerate(self.include or ()):
            if name not in (LOGPROBS, REASONING):
                ignored.add(f"include[{number}]")

    def _options(self, ignored: Ignored) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in PLAIN}
        given["stop"] = self.stop or None
        if self.top_k is not None:
            given["top_k"] = max(self.top_k, 0)
        if self.top_p is not None:
            given["top_p"] = max(self.top_p, LEAST_TOP_P)
        if self.max_output_tokens is not None and self.max_output_tokens >= 0:
            given["max_tokens"] = self.max_output_tokens
        if self.wants_logprobs:
            given["logprobs"] = self.top_logprobs or 0
        if self.stream and (self.return_progress or self.timings_per_token):
            given["progress"] = True
        options = {name: value for name, value in given.items() if value is not None}
        form = (
            None
            if self.text is None
            else response_format_of(ignored, self.text.format, "text.format")
        )
        return options | format_options(form, "text.format.schema")
