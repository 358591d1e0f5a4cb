"""Check messages of /v1/chat/completions and normalize them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from trinity.errors import InputError

Message = Mapping[str, object]
_EXAMPLE = '{"role": "user", "content": "Hello"}'
_TEXTS = {"text": "text", "refusal": "refusal"}  # kinds of parts, and the key of their text
_IMAGE = {"type": "image"}
_PIECE = 1 << 16  # characters of an image that are decoded at once
# Kinds of parts with an image, and the keys that it may have there.
_IMAGES = {
    "image": ("image", "url", "path", "base64"), "image_url": ("image_url",),
    "input_image": ("image_url",),
}  # fmt: skip
_MAY_BE_EMPTY = ("assistant", "tool", "function")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def read_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages with text as content, calls with objects as arguments, and names.

    Content is a string, or text parts, which are joined by line feeds. With images, it is a list of
    parts of the types "text" and "image", as ``take_images`` returns them. An assistant's message
    may have "tool_calls", whose arguments are an object or its JSON text; such a message and a
    tool's need no content. Reasoning is under "reasoning_content", "reasoning" or "thinking". The
    result of a tool has the role "tool" and "tool_call_id" or "name". OpenAI's older forms, the
    key "function_call" and the role "function", are converted. Other keys are kept.

    Raises InputError that names the message and what is wrong with it.
    """
    if isinstance(messages, str | Mapping) or not len(messages):
        raise InputError(
            f"messages must be a list such as [{_EXAMPLE}], "
            f"with at least one message; got {messages!r:.200}"
        )
    names: dict[str, str] = {}  # names of tools, by the ids of their calls
    return [_message(f"message {i}", message, names) for i, message in enumerate(messages)]


def _message(where: str, message: Message, names: dict[str, str]) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(
            f'{where} has no "role": {message!r:.200}; expected an object such as {_EXAMPLE}'
        )
    calls, role = message.get("tool_calls"), message["role"]
    if not calls and message.get("function_call"):
        calls = [{"function": message["function_call"]}]
    if role not in _MAY_BE_EMPTY and not calls and message.get("content") is None:
        raise InputError(
            f'{where} has no "content": {message!r:.200}; give its text, as in {_EXAMPLE}'
        )
    read: dict[str, Any] = {k: v for k, v in message.items() if k not in _THOUGHTS}
    read.pop("tool_calls", None)
    read.pop("function_call", None)
    read["content"] = _content(where, message.get("content"))
    if calls:
        if role != "assistant":
            raise InputError(
                f"{where} has tool calls, but the role {role!r}; only an assistant calls tools"
            )
        read["tool_calls"] = _calls(where, calls, names)
    if role == "assistant":
        thought = _thought(message)
        if thought:
            read["reasoning_content"] = thought
    if role in ("tool", "function"):
        read["role"] = "tool"
        _name_tool(where, read, names)
    return read


def _thought(message: Message) -> str | None:
    thought = next((message[key] for key in _THOUGHTS if message.get(key)), None)
    if thought is not None and not isinstance(thought, str):
        raise InputError(f"a message's reasoning is {type(thought).__name__}; it must be text")
    return thought


def take_images(messages: Sequence[Message]) -> tuple[Sequence[Message], list[object]]:
    """Return the messages with {"type": "image"} for each image, and the images in order.

    An image is a part {"type": "image", "image": ...} with what ``read_image`` reads, or OpenAI's
    {"type": "image_url", "image_url": {"url": ...}} with a data URL.
    Raises: InputError for a part without an image, and for a URL of another kind.
    """
    if isinstance(messages, str | Mapping):
        return messages, []  # read_messages refuses them
    images: list[object] = []
    taken: list[Message] = []
    of_tools = 0  # images in the newest results, which templates write as text
    for number, message in enumerate(messages):
        is_result = isinstance(message, Mapping) and message.get("role") == "tool"
        if not is_result and of_tools:
            taken.append(_shown(of_tools))
            of_tools = 0
        before = len(images)
        read = _without_images(f"message {number}", message, images)
        if is_result and len(images) > before:
            of_tools += len(images) - before
            texts = [part for part in _listed(read) if part != _IMAGE]
            read = {**read, "content": texts or ""}
        taken.append(read)
    if of_tools:
        taken.append(_shown(of_tools))
    return taken, images


def _listed(message: Message) -> list[object]:
    content = message["content"]
    assert isinstance(content, list)
    return content


def _shown(count: int) -> Message:
    """A user's message with the images of a tool's results."""
    return {"role": "user", "content": [_IMAGE] * count}


def _without_images(where: str, message: Message, images: list[object]) -> Message:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple):
        return message
    parts: list[object] = []
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _IMAGES:
            images.append(_image(f"{where}, part {number}", part))
            part = _IMAGE
        parts.append(part)
    return {**message, "content": parts}


def _image(where: str, part: Mapping[str, object]) -> object:
    keys = _IMAGES[str(part["type"])]
    key = next((key for key in keys if part.get(key) is not None), None)
    if key is None:
        raise InputError(f"{where} has no image; it needs {' or '.join(keys)}")
    given = part[key]
    if isinstance(given, Mapping):
        given = given.get("url")
    if key == "base64" and isinstance(given, str):
        return decoded_image(where, given)
    if isinstance(given, str) and (key == "image_url" or given.startswith("data:")):
        return data_of_url(where, given)
    return given


def data_of_url(where: str, url: str) -> bytes:
    """Return the bytes in a data URL. Raises: InputError for other URLs and bad base64."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise InputError(
            f"{where}: the URL {url!r:.60} is not read; send the image itself, as a URL that "
            "begins with data:image/png;base64,"
        )
    return decoded_image(where, body) if head.endswith(";base64") else _unquoted(body)


def _unquoted(text: str) -> bytes:
    """Return the bytes of a text with escapes such as %20; in pieces, as ``decoded_image``."""
    found, start = bytearray(), 0
    while start < len(text):
        end = start + _PIECE
        while text.find("%", end - 2, end) >= 0:  # an escape may continue there
            end += 1
        found += unquote_to_bytes(text[start:end])
        start = end
    return bytes(found)


def decoded_image(where: str, text: str) -> bytes:
    """Return the bytes of an image in base64, with line breaks or not. Raises: InputError.

    It is decoded in pieces, because a call holds the interpreter's lock.
    """
    found, left = bytearray(), ""
    try:
        for start in range(0, len(text), _PIECE):
            piece = left + "".join(text[start : start + _PIECE].split())
            whole = max(len(piece) - 5, 0) // 4 * 4  # the end may have padding
            if "=" in piece[:whole]:
                raise ValueError
            found += base64.b64decode(piece[:whole], validate=True)
            left = piece[whole:]
        found += base64.b64decode(left, validate=True)
        return bytes(found)
    except ValueError:
        raise InputError(f"{where}: its base64 is damaged; encode the image again") from None


def text_of(message: Message) -> str:
    """The text of a message, whose content may be parts."""
    content = message.get("content")
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "\n".join(text for text in texts if isinstance(text, str))
    return str(content or "")


def _content(where: str, content: object) -> str | list[dict[str, str]] | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InputError(
            f"{where}: content is {type(content).__name__}; it must be text, or a list of parts"
        )
    if any(isinstance(part, Mapping) and part.get("type") == "image" for part in content):
        return [
            {"type": "image"}
            if isinstance(part, Mapping) and part.get("type") == "image"
            else {"type": "text", "text": _part(f"{where}, part {i}", part)}
            for i, part in enumerate(content)
        ]
    return "\n".join(_part(f"{where}, part {i}", part) for i, part in enumerate(content))


def _part(where: str, part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InputError(f"{where} is {type(part).__name__}; it must be an object or a text")
    kind = part.get("type")
    if kind not in _TEXTS:
        raise InputError(
            f'{where} has the type {kind!r:.80}; supported are "text" and, for vision models, '
            '"image" and "image_url"'
        )
    text = part.get(_TEXTS[str(kind)])
    if not isinstance(text, str):
        raise InputError(f'{where} has no text; expected {{"type": "text", "text": "Hello"}}')
    return text


def _calls(where: str, calls: object, names: dict[str, str]) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise InputError(f"{where}: tool_calls is {type(calls).__name__}; it must be a list")
    read = []
    for number, call in enumerate(calls):
        at = f"{where}, call {number}"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError(
                f'{at} has no function with a name; expected {{"function": {{"name": "get_time", '
                '"arguments": "{}"}}'
            )
        made = {**call, "type": "function"}
        made["id"] = str(call.get("id") or f"call_{len(names)}")
        made["function"] = {**function, "arguments": _arguments(at, function.get("arguments"))}
        names[made["id"]] = str(function["name"])
        read.append(made)
    return read


def _arguments(where: str, arguments: object) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: its arguments are not valid JSON ({error})") from None
    if arguments == []:  # as PHP writes an empty object
        return {}
    if not isinstance(arguments, Mapping | None):
        raise InputError(
            f"{where}: its arguments are {type(arguments).__name__}; they must be an object"
        )
    return arguments or {}


def _name_tool(where: str, message: dict[str, Any], names: Mapping[str, str]) -> None:
    """Add the tool's name to its result, which some templates need."""
    called = message.get("tool_call_id")
    if called is not None and not isinstance(called, str):
        raise InputError(
            f"{where}: tool_call_id is not text but {type(called).__name__}; give the call's id"
        )
    name = message.get("name") or message.get("tool_name") or names.get(called or "")
    if name:
        message["name"] = message["tool_name"] = name
