"""Which calls a template writes; whether a response may have several if no request says it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from trinity.conversation.dialects import GENERAL, dialect_of
from trinity.conversation.traits import traits_of
from trinity.errors import InputError, TokenizerError
from trinity.formats.defaults import ChatTemplate
from trinity.tokenizers.chat import render_listing

_NAME, _KEY, _VALUES = "count_zebras", "stripes", ("qx7", "vk3")


def allows_parallel(template: ChatTemplate, given: bool | None, choice: str) -> bool:
    """Whether a response may have more than one call.

    A named function is called once, as by OpenAI and vLLM. Otherwise the request decides, then the
    template's handling of two calls. Source of that default: llama.cpp
    tools/server/server-common.cpp, parallel_tool_calls.
    """
    if choice not in ("none", "auto", "required"):
        return False
    return writes_parallel_calls(template) if given is None else given


def writes_parallel_calls(template: ChatTemplate) -> bool:
    """Whether a template writes every call of a message that has two.

    Source: llama.cpp common/jinja/caps.cpp, supports_parallel_tool_calls.
    """
    traits = traits_of(template)
    if dialect_of(template.text) is GENERAL or not traits.tools or not traits.calls:
        return False
    return renders_all_calls(template)


@lru_cache(maxsize=16)
def renders_all_calls(template: ChatTemplate) -> bool:
    """Whether a history's text contains both calls of a message."""
    text = _rendered(template, None, _VALUES)
    return all(value in text for value in _VALUES)


@lru_cache(maxsize=16)
def renders_calls_of_texts(template: ChatTemplate) -> bool:
    """Whether a history's text contains the call of a message that also has a text."""
    return _VALUES[0] in _rendered(template, "Let me count", _VALUES[:1])


def _rendered(template: ChatTemplate, content: str | None, values: Sequence[str]) -> str:
    """The text of a history with a call for each value in one message; "" if it is refused."""
    traits = traits_of(template)
    calls = []
    for number, value in enumerate(values):
        arguments: Any = {_KEY: value}
        if traits.arguments_as_text:
            arguments = f'{{"{_KEY}": "{value}"}}'
        function = {"name": _NAME, "arguments": arguments}
        calls.append({"id": f"call0000{number}", "type": "function", "function": function})
    content = content or ("" if traits.empty_content else None)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": content, "tool_calls": calls},
    ]
    for call in calls:
        messages.append(
            {"role": "tool", "content": "4", "tool_call_id": call["id"], "name": _NAME,
             "tool_name": _NAME}
        )  # fmt: skip
    schema = {"type": "object", "properties": {_KEY: {"type": "string", "description": "Which"}}}
    function = {"name": _NAME, "description": "Counts", "parameters": schema}
    tools = [{"type": "function", "function": function}] if traits.tools else None
    try:
        return render_listing(template, messages, tools, bos_token="<s>", eos_token="</s>")
    except (TokenizerError, InputError):
        return ""
