"""Rewrite a history for chat templates that refuse it or drop messages of it.

Templates differ in the roles they know, in their order, and in how many calls a message may have.
Each function returns the same conversation in another order of messages or roles; no text is lost.
Source of the rules for system messages: llama.cpp, common/chat.cpp, namespace workaround, and
minja, polyfill_system_role.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

History = list[Mapping[str, Any]]
_SYSTEM = ("system", "developer")


def variants(
    history: Sequence[Mapping[str, Any]],
    as_text: Callable[[Any], Any],
    mark: str = "",
    joint: str = "",
) -> Iterator[History]:
    """The history itself, then forms that ask less and less of the template, each form once.

    ``as_text`` turns a message's calls, or a tool's result, into text. ``mark`` is the text of an
    image, ``joint`` that between it and other parts.
    """
    forms: tuple[Callable[[], History], ...] = (
        lambda: list(history),
        lambda: typed(history),
        lambda: marked(history, mark, joint),
        lambda: led_by_system(history),
        lambda: without_system(history),
        lambda: alternating(led_by_system(history)),
        lambda: alternating(without_system(history)),
        lambda: alternating(
            without_system([as_text(message) for message in marked(history, mark, joint)])
        ),
    )
    seen: list[History] = []
    for form in forms:
        variant = form()
        if variant not in seen:
            seen.append(variant)
            yield variant


def typed(history: Sequence[Mapping[str, Any]]) -> History:
    """Return contents as lists of one text part, which some multimodal templates require."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message.get("content"), str)
        else message
        for message in history
    ]


def marked(history: Sequence[Mapping[str, Any]], mark: str, joint: str = "") -> History:
    """Return contents with images as text, with ``mark`` for each image and ``joint`` beside it."""
    return [
        {**message, "content": _joined(message["content"], mark, joint)}
        if isinstance(message.get("content"), list)
        else message
        for message in history
    ]


def _joined(parts: Sequence[Mapping[str, str]], mark: str, joint: str) -> str:
    """Return parts as one text, with ``mark`` for each image."""
    text, last = "", ""
    for part in parts:
        kind = part["type"]
        if text:
            text += "\n" if last == kind == "text" else joint
        text += mark if kind == "image" else part["text"]
        last = kind
    return text


def led_by_system(history: Sequence[Mapping[str, Any]]) -> History:
    """Move system messages to the beginning or into the user message that follows."""
    first = next((i for i, m in enumerate(history) if m["role"] not in _SYSTEM), len(history))
    if not first:
        return without_system(history)
    text = "\n".join(_text(message) for message in history[:first])
    system = {**history[0], "role": "system", "content": text}
    return [system, *without_system(history[first:])]


def without_system(history: Sequence[Mapping[str, Any]]) -> History:
    """Move system messages into the next user message, or into a user message of their own.

    Source: minja, chat-template.hpp, polyfill_system_role.
    """
    out: History = []
    pending: list[str] = []
    for message in history:
        if message["role"] in _SYSTEM:
            pending.append(_text(message))
            continue
        if pending and message["role"] == "user":
            content = message.get("content")
            if isinstance(content, list):
                content = [{"type": "text", "text": "\n".join(pending)}, *content]
            else:
                content = "\n".join([*pending, *([content] if content else [])])
            message = {**message, "content": content}
        elif pending:
            out.append({"role": "user", "content": "\n".join(pending)})
        pending = []
        out.append(message)
    if pending:
        out.append({"role": "user", "content": "\n".join(pending)})
    return out


def alternating(history: Sequence[Mapping[str, Any]]) -> History:
    """Join adjacent messages of one role; add an empty user message before a first assistant's.

    Assistant messages without text and calls are dropped.
    """
    out: History = []
    for message in history:
        last = out[-1] if out else None
        if message["role"] == "assistant" and not _text(message) and not message.get("tool_calls"):
            continue
        if message["role"] == "assistant" and (last is None or last["role"] in _SYSTEM):
            out.append({"role": "user", "content": ""})
        elif (
            last is not None
            and last["role"] == message["role"] != "tool"
            and not last.get("tool_calls")
            and not message.get("tool_calls")
        ):
            out[-1] = {**last, **message, "content": _together(last, message)}
            continue
        out.append(message)
    return out


def one_call_each(history: Sequence[Mapping[str, Any]]) -> History:
    """Put each call into a message of its own, followed by its result.

    For templates that write one call per message, such as those of Llama 3.
    """
    out: History = []
    at = 0
    while at < len(history):
        message = history[at]
        at += 1
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            out.append(message)
            continue
        end = next((i for i in range(at, len(history)) if history[i]["role"] != "tool"), None)
        results = list(history[at:end])
        at += len(results)
        for number, call in enumerate(calls):
            out.append(
                {**message, "tool_calls": [call]}
                if number == 0
                else {"role": "assistant", "content": None, "tool_calls": [call]}
            )
            known = [r for r in results if r.get("tool_call_id") == call["id"]]
            known = (known or [r for r in results if not r.get("tool_call_id")])[:1]
            out += known
            results = [result for result in results if all(result is not other for other in known)]
        out += results
    return out


def texts_before_calls(history: Sequence[Mapping[str, Any]]) -> History:
    """Put the text of a message with calls into a message before it.

    For templates that write either the text or the calls, such as those of DeepSeek R1.
    """
    out: History = []
    for message in history:
        if message.get("tool_calls") and message.get("content"):
            out.append({key: value for key, value in message.items() if key != "tool_calls"})
            message = {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]}
        out.append(message)
    return out


def keeps_texts(text: str, history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a rendered text contains the messages that templates tend to drop.

    Those are system messages, the last user message, and tool results without a call.
    """
    users = [message for message in history if message["role"] == "user"][-1:]
    systems = [message for message in history if message["role"] in _SYSTEM]
    calling = next((i for i, m in enumerate(history) if m.get("tool_calls")), len(history))
    results = [message for message in history[:calling] if message["role"] == "tool"]
    kept = (part["text"] for m in (*systems, *users, *results) for part in _texts(m))
    return all(_is_in(text, part.strip()) for part in kept)


def _is_in(text: str, part: str) -> bool:
    """Whether the text contains a part, as it is or as JSON."""
    if part in text:
        return True
    return any(json.dumps(part, ensure_ascii=ascii)[1:-1] in text for ascii in (False, True))


def count_images(message: Mapping[str, Any]) -> int:
    """The number of images in a message."""
    return sum(part["type"] == "image" for part in _parts(message.get("content")))


def _together(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | list[dict[str, str]]:
    """The contents of two messages as one."""
    contents = first.get("content"), second.get("content")
    if any(isinstance(content, list) for content in contents):
        return [part for content in contents for part in _parts(content)]
    return "\n\n".join(text for text in (_text(first), _text(second)) if text)


def _texts(message: Mapping[str, Any]) -> list[dict[str, str]]:
    """The parts of a message that are text."""
    return [part for part in _parts(message.get("content")) if part["type"] == "text"]


def _parts(content: Any) -> list[dict[str, str]]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message without its images."""
    return "\n".join(part["text"] for part in _texts(message))
