"""Ollama's messages and their conversion for chat templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from trinity.server.endpoints.messages import Content, image_part, joined
from trinity.server.errors import ApiError
from trinity.server.schemas import Body, encode


class EarlierFunction(Body):
    """The function of a tool call in an earlier response."""

    name: str
    arguments: dict[str, Any] | str | None = None
    index: int | None = None


class EarlierCall(Body):
    """A tool call in an earlier response."""

    function: EarlierFunction
    id: str | None = None
    type: Literal["function"] | None = None


class OllamaMessage(Body):
    """A message of a conversation."""

    role: str
    content: str = ""
    thinking: str | None = None
    tool_calls: list[EarlierCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    images: list[Any] | None = None


_ROLES = ("system", "user", "assistant", "tool")


def messages_of(messages: Sequence[OllamaMessage]) -> list[dict[str, Any]]:
    """Convert messages for chat templates. Raises: ApiError for unknown roles.

    Tool calls without an id are numbered. A result without an id belongs to the first call without
    a result (of the result's tool, if it names one).
    """
    converted: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []  # (id, name) of calls without a result
    count = 0
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role = message.role.lower().replace("developer", "system")
        if role not in _ROLES:
            known = ", ".join(_ROLES)
            raise ApiError(
                400,
                f"{where}.role is {message.role!r:.40}; it must be one of {known}",
                f"{where}.role",
            )
        content = with_images(message.content, message.images, f"{where}.images")
        made: dict[str, Any] = {"role": role, "content": content}
        if message.thinking:
            made["reasoning_content"] = message.thinking
        if message.tool_calls:
            made["tool_calls"] = calls = []
            for call in message.tool_calls:
                name = call.id or f"call{count:05d}"
                count += 1
                open_calls.append((name, call.function.name))
                function = {"name": call.function.name, "arguments": _arguments(call, where)}
                calls.append({"id": name, "type": "function", "function": function})
        if role == "tool":
            fitting = [x for x in open_calls if message.tool_name in (None, x[1])]
            if message.tool_call_id is not None:
                fitting = [x for x in open_calls if x[0] == message.tool_call_id]
                made["tool_call_id"] = message.tool_call_id
            elif fitting:
                made["tool_call_id"] = fitting[0][0]
            if fitting:
                open_calls.remove(fitting[0])
            if message.tool_name is not None:
                made["name"] = message.tool_name
        converted.append(made)
    return converted


def with_images(text: str, images: Sequence[Any] | None, where: str) -> Content:
    """Return a message's content: its images, in base64, come before its text.

    Raises: ApiError for images in another form.
    """
    if not images:
        return text
    shown = [image_part(image, f"{where}[{number}]") for number, image in enumerate(images)]
    return joined([*shown, text])


def _arguments(call: EarlierCall, where: str) -> str:
    """Return the JSON text of a call's arguments; OpenAI's clients send them as text."""
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        return encode(arguments or {}).decode()
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, ValueError) as error:
        at = f"{where}.tool_calls"
        raise ApiError(400, f"{at}: the arguments are not a JSON object: {error}", at) from None
    return arguments or "{}"
