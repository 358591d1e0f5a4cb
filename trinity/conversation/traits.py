"""Find out how a chat template handles tools, by rendering small conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trinity.errors import InputError, TokenizerError, UnsupportedError
from trinity.formats.defaults import ChatTemplate
from trinity.tokenizers.chat import render_listing

_NAME, _KEY, _VALUE, _RESULT = "count_zebras", "stripes", "qx7", "wz9"
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Counts",
        "parameters": {
            "type": "object",
            "properties": {_KEY: {"type": "string", "description": "Which"}},
            "required": [_KEY],
        },
    },
}
_USER = {"role": "user", "content": "Hello"}


@dataclass(frozen=True, slots=True)
class Traits:
    """How a template handles tools."""

    tools: bool  # lists the tools
    calls: bool  # writes an assistant's calls
    results: bool  # writes tools' results
    arguments_as_text: bool = False  # takes a call's arguments as JSON text
    empty_content: bool = False  # needs "" for a message without content
    system: bool = True  # accepts system messages


@lru_cache(maxsize=16)
def traits_of(template: ChatTemplate) -> Traits:
    """Find the traits of a template by rendering up to seven conversations; the result is cached.

    Raises UnsupportedError for a template that cannot be rendered at all.
    """
    listed = _text(template, [_USER], [_TOOL])
    tools = listed is not None and _NAME in listed
    told = _text(template, [{"role": "system", "content": _RESULT}, _USER], None)
    system = told is not None and _RESULT in told
    renderings: list[tuple[str, bool, bool]] = []
    for as_text in (False, True):
        for empty in (False, True):
            text = _text(template, _conversation(as_text, empty), [_TOOL] if tools else None)
            if text is not None and _VALUE in text and not _is_odd(text):
                renderings.append((text, as_text, empty))
        if renderings:
            break
    if not renderings:
        result: dict[str, Any] = {"role": "tool", "content": _RESULT, "name": _NAME}
        answered = _text(template, [_USER, {"role": "assistant", "content": "Hi"}, result], None)
        results = answered is not None and _RESULT in answered
        return Traits(tools, False, results, system=system)
    text, as_text, empty = min(
        renderings, key=lambda rendering: (rendering[0].count("None"), rendering[2])
    )
    return Traits(tools, True, _RESULT in text, as_text, empty, system)


def _is_odd(text: str) -> bool:
    """Whether the text contains an object in Python's notation, or JSON encoded twice."""
    return f"'{_KEY}': '{_VALUE}'" in text or f'\\"{_KEY}\\": \\"{_VALUE}' in text


def _conversation(as_text: bool, empty: bool) -> list[dict[str, Any]]:
    arguments: object = {_KEY: _VALUE}
    function = {"name": _NAME, "arguments": json.dumps(arguments) if as_text else arguments}
    call = {"id": "call00001", "type": "function", "function": function}
    answer = {"role": "assistant", "content": "" if empty else None, "tool_calls": [call]}
    result = {
        "role": "tool",
        "content": _RESULT,
        "tool_call_id": "call00001",
        "name": _NAME,
        "tool_name": _NAME,
    }
    return [_USER, answer, result]


def _text(
    template: ChatTemplate, messages: Sequence[dict[str, Any]], tools: list[Any] | None
) -> str | None:
    try:
        return render_listing(template, messages, tools, bos_token="<s>", eos_token="</s>")
    except UnsupportedError:
        raise
    except (TokenizerError, InputError):
        return None
