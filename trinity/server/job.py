"""A request as every API's endpoint hands it on, and what comes back of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trinity.conversation.parts import Part, Text
from trinity.formats.defaults import ChatTemplate
from trinity.runtime.generation import FinishReason, Timings
from trinity.runtime.sampler import TokenLogprob


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A conversation to go on with, in ``n`` answers.

    ``messages`` and ``tools`` have OpenAI's form of /v1/chat/completions, which chat templates
    know; content is a string, or None beside tool calls. ``tool_choice`` is "none", "auto",
    "required" or the name of the one function to call. ``options`` are GenerationOptions that were
    given. ``variables`` are further names for the chat template, such as enable_thinking.
    ``reasoning_budget``: the most tokens of reasoning before an answer. ``effort``: how much the
    model thinks, "none", "some" or a degree such as "low", as the parameter ``effort_param`` says.
    Both are ignored if the model cannot think.
    ``add_generation_prompt``: the prompt ends with the beginning of an answer. ``continues``: the
    last message is the assistant's, and answers go on with its text. ``template`` replaces the
    model's chat template. ``before``: tokens of an earlier conversation, which go before the
    prompt. ``cut_after``: a prompt longer than the context is cut, and keeps its first tokens, as
    many as this says (see ``fitting``); None: it is refused.
    """

    messages: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool | None = None  # None: as the chat template does
    n: int = 1
    variables: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False  # each answer as one Piece, for what is not streamed: it costs less
    reasoning_budget: int | None = None
    effort: str | None = None
    effort_param: str = "reasoning_effort"
    add_generation_prompt: bool = True
    continues: bool = False
    template: ChatTemplate | None = None
    before: Sequence[int] = ()
    cut_after: int | None = None


@dataclass(frozen=True, slots=True)
class TextJob:
    """Prompts, texts or token ids, to complete as they are, each in ``n`` answers.

    Answer ``index`` belongs to prompt ``index // n``. The parts of its pieces are Text.
    ``cut_after``: as of ChatJob.
    """

    prompts: Sequence[str | Sequence[int]]
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int = 1
    whole: bool = False
    cut_after: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Parts of the answer ``index``, with the tokens they came from and, if asked, their logprobs.

    A token comes with the piece that it completes, or with a later one without parts. With the
    option ``progress`` a piece has the timings so far; one that comes while the prompt is evaluated
    says in ``evaluated`` how many of its tokens are.
    """

    index: int
    parts: tuple[Part, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()
    timings: Timings | None = None
    evaluated: int | None = None

    @property
    def text(self) -> str:
        """The text of all parts that are text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class End:
    """The end of the answer ``index``.

    ``called``: it ended with calls of tools. ``stop`` is the stop string that ended it, if one did.
    ``token_hash`` is ``TokenHash``'s of the answer's tokens.
    """

    index: int
    reason: FinishReason
    timings: Timings
    called: bool = False
    stop: str | None = None
    token_hash: str = ""


class TokenHash:
    """The first 16 bytes of SHA-256 of token ids, each as 4 bytes, little-endian."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, ids: Iterable[int]) -> None:
        """More tokens."""
        self._hash.update(np.fromiter(ids, "<u4").tobytes())

    def __str__(self) -> str:
        return self._hash.hexdigest()[:32]


Event = Piece | End
