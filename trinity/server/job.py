"""Requests in the form that all APIs share, and the events of their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trinity.conversation.parts import Part, Text
from trinity.formats.defaults import ChatTemplate
from trinity.runtime.generation import FinishReason, Timings
from trinity.runtime.sampling.logprobs import TokenLogprob


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A conversation to continue with ``n`` responses."""

    messages: Sequence[Mapping[str, Any]]
    """In the form of /v1/chat/completions; content is a string, or None with tool calls."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """GenerationOptions of the request."""
    tools: Sequence[Mapping[str, Any]] = ()
    """In the form of /v1/chat/completions."""
    tool_choice: str = "auto"
    """"none", "auto", "required", or the name of the function to call."""
    parallel_tool_calls: bool | None = None
    """None: as the chat template does."""
    n: int = 1
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the chat template, such as enable_thinking."""
    whole: bool = False
    """Each response is one Update. It costs less where nothing is streamed."""
    reasoning_budget: int | None = None
    """The maximum number of reasoning tokens. Ignored if the model cannot think."""
    budget_message: str = ""
    """The last text of reasoning that ends by ``reasoning_budget`` or ``Answers.control``."""
    reasoning_control: bool = False
    """Reasoning can be ended during generation (see ``Answers.control``)."""
    effort: str | None = None
    """How much the model thinks: "none", "some" or a degree such as "low".

    Ignored if the model cannot think.
    """
    effort_param: str = "reasoning_effort"
    """The parameter that gave ``effort``."""
    add_generation_prompt: bool = True
    """The prompt ends with the beginning of a response."""
    continues: bool = False
    """The last message is the assistant's, and responses continue its text."""
    template: ChatTemplate | None = None
    """Replaces the model's chat template."""
    before: Sequence[int] = ()
    """Tokens of an earlier conversation, which precede the prompt."""
    cut_after: int | None = None
    """A prompt longer than the context keeps this many first tokens (see ``fitting``).

    None: such a prompt is refused.
    """


@dataclass(frozen=True, slots=True)
class TextJob:
    """Prompts to complete as they are, each with ``n`` responses.

    Response ``index`` belongs to prompt ``index // n``. The parts of its updates are Text.
    """

    prompts: Sequence[str | Sequence[int]]
    """Texts or token ids."""
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    whole: bool = False
    cut_after: int | None = None
    """See ChatJob."""


@dataclass(frozen=True, slots=True)
class Update:
    """New parts, tokens or figures of one response."""

    index: int
    """Number of the response."""
    parts: tuple[Part, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()
    """Tokens of the parts. A token comes with the part that it completes, or later."""
    timings: Timings | None = None
    """Timings so far, with the option ``progress``."""
    evaluated: int | None = None
    """How many tokens of the prompt are computed, while it is being prefilled."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class End:
    """The end of one response."""

    index: int
    """Number of the response."""
    reason: FinishReason
    timings: Timings
    called: bool = False
    """It ended with calls of tools."""
    stop: str | None = None
    """The stop string that ended it."""
    token_hash: str = ""
    """Hash of its tokens (see ``service.TokenHash``)."""


Event = Update | End
