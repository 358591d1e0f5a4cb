"""The marks between which models think."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trinity.conversation.cursor import WHITE


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text between ``begin`` and ``end`` is reasoning; ``then`` follows it before the answer."""

    begin: str
    end: str
    then: str = ""

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends within: the answer then begins with reasoning."""
        return prompt.rstrip(WHITE).endswith(self.begin.rstrip(WHITE))


TAGS = Thinking("<think>", "</think>")
_KNOWN = (
    Thinking("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"),  # gpt-oss
    Thinking("<|channel>thought", "<channel|>"),  # Gemma 4
    Thinking("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    Thinking("[THINK]", "[/THINK]"),  # Magistral, Ministral
    Thinking("<seed:think>", "</seed:think>"),
    Thinking("<mm:think>", "</mm:think>"),  # MiniMax M3
    Thinking("<think:opensource>", "</think:opensource>"),  # Hunyuan
    Thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
)


@lru_cache(maxsize=16)
def thinking_of(template: str) -> Thinking:
    """The marks that a chat template writes, else those that most models use."""
    return next((one for one in _KNOWN if one.end in template and _first(one) in template), TAGS)


def _first(thinking: Thinking) -> str:
    return thinking.begin.partition(">")[0]
