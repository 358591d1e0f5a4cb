"""Conversations in files: JSON with messages in the format of OpenAI's API."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from trinity.conversation.messages import read_messages, take_images
from trinity.errors import InputError
from trinity_kernels.whole_file import whole_file

LARGEST = 64 << 20  # bytes


def read_conversation(path: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the messages of a file, unchanged, and the names of its other keys.

    The file contains an object with "messages", such as the body of a request, or the list alone.
    Raises InputError if it cannot be read, is not such JSON, or has a malformed message.
    """
    value = _json(path)
    rest: list[str] = []
    if isinstance(value, dict) and "messages" in value:
        rest = [name for name in value if name != "messages"]
        value = value["messages"]
    if not isinstance(value, list):
        raise InputError(f'{path}: not a conversation; expected {{"messages": [...]}} or the list')
    try:
        read_messages(take_images(value)[0])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return value, rest


def write_conversation(
    path: str, messages: Sequence[Mapping[str, Any]], *, overwrite: bool = False
) -> None:
    """Write messages for ``read_conversation``; the file appears when it is complete.

    Raises InputError if it exists and ``overwrite`` is not set, is not a regular file, or cannot be
    written.
    """
    if os.path.lexists(path) and not overwrite:
        raise InputError(
            f"{path}: the file exists already; give another name, or --force to replace it"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path}: not a regular file")
    text = json.dumps({"messages": messages}, ensure_ascii=False, indent=2) + "\n"
    try:
        with whole_file(path) as file:
            file.write(text.encode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be written ({reason})") from error


def _json(path: str) -> object:
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path}: not a regular file")
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}); give a saved conversation") from error
    if len(data) > LARGEST:
        raise InputError(f"{path}: has more than {LARGEST} bytes, the limit for conversations")
    try:
        value: object = json.loads(data.decode("utf-8-sig"))
        # raises if UTF-8 cannot encode the text
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from None
    return value
