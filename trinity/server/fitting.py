"""Truncate a prompt that is longer than the context, as Ollama does: oldest messages first.

Source: Ollama's server/prompt.go (chatPrompt) and llm/llama_server.go (completionPromptForRequest).
Dropped messages have no effect on the response, so they are named as ignored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.runtime.image_rows import images_of
from trinity.runtime.scheduling.sequence import check_context
from trinity.server.ignored import Ignored

if TYPE_CHECKING:
    from trinity.conversation.prompt import ChatPrompt

Messages = Sequence[Mapping[str, Any]]
# One part in so many of the context is free for the response after messages were dropped.
_FREE = 4


def cut_ids(
    ignored: Ignored, ids: Sequence[int], context_length: int, keep: int, name: str
) -> list[int]:
    """The ids if there is room for one more; else the first ``keep`` and the last of them.

    Half of the context beyond ``keep`` is then free. A negative ``keep`` is all that fit.
    The ids that do not fit are reported as ignored under ``name``.
    """
    if len(ids) < context_length:
        return list(ids)
    keep = context_length - 1 if keep < 0 else min(keep, context_length - 1)
    most = context_length - max((context_length - keep) // 2, 1)
    end = len(ids) - (most - keep)
    ignored.add(f"{name}[tokens {keep}:{end}]")
    return [*ids[:keep], *ids[end:]]


def cut_prompt(
    ignored: Ignored,
    rendered: Callable[[Messages], ChatPrompt],
    messages: Messages,
    context_length: int,
    keep: int,
) -> ChatPrompt:
    """The prompt of a conversation, ``rendered`` without its oldest messages if it is too long.

    System messages stay, and so do the last user message and what follows it. What remains begins
    with a user message, as chat templates want it. If that is too long, too: as ``cut_ids``; with
    images it raises ContextLengthError.
    """
    prompt = rendered(messages)
    if len(prompt.ids) < context_length:
        return prompt
    most = context_length - context_length // _FREE
    starts = [i for i, message in enumerate(messages) if i and message["role"] == "user"]
    dropped = [i for i, message in enumerate(messages) if message["role"] != "system"]

    def without(start: int) -> ChatPrompt:
        system = [message for message in messages[:start] if message["role"] == "system"]
        return rendered([*system, *messages[start:]])

    first = bisect_left(starts, True, key=lambda start: len(without(start).ids) <= most)
    if starts and (start := starts[min(first, len(starts) - 1)]) > dropped[0]:
        ignored.add(f"messages[{dropped[0]}:{start}]")
        prompt = without(start)
    if images_of(prompt.ids):  # which cannot be cut
        check_context(len(prompt.ids) + 1, context_length)
        return prompt
    bos = prompt.tokenizer.bos_id
    if keep >= 0 and bos is not None and prompt.ids[:1] == [bos]:
        keep += 1
    return replace(prompt, ids=cut_ids(ignored, prompt.ids, context_length, keep, "prompt"))
