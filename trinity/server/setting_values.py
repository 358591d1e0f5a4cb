"""Check the values of server options, and read the files that they name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trinity.errors import InputError
from trinity.options.checks import check_text
from trinity_kernels.whole_file import check_writable

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate


def texts(name: str, value: object) -> tuple[str, ...]:
    """Check several non-empty texts. Raises: InputError."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} is {value!r:.40}; it must be a list of texts")
    for text in value:
        if not check_text(f"one of {name}", text).strip():
            raise InputError(f"one of {name} is empty")
    return tuple(value)


def addresses(name: str, value: object) -> str:
    """Check addresses separated by commas. Raises: InputError."""
    text = check_text(name, value)
    if "," in text and not all(part.strip() for part in text.split(",")):
        raise InputError(f"{name} is {text!r:.80}; an address between its commas is missing")
    return text


def names(name: str, value: object) -> Mapping[str, object] | None:
    """Check names with values. Raises: InputError."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name} is {value!r:.40}; it must be an object of names and values")
    return value


def read_names(flag: str, text: str) -> Mapping[str, object]:
    """Parse a JSON object. Raises: InputError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{flag} is {text!r:.80}, which is not valid JSON: {error}; expected an object such as "
            '{"enable_thinking": false}'
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{flag} is {text!r:.40}; it must be a JSON object")
    return value


def listed(name: str, text: str | None) -> tuple[str, ...]:
    """Return the comma-separated parts of a text without duplicates. Raises: InputError."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"{name} is {text!r:.80}; a word between its commas is missing")
    return tuple(dict.fromkeys(parts))


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raises: InputError if slots cannot be saved in the folder."""
    try:
        check_writable(os.fspath(path))
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)}: slots cannot be saved there ({error.strerror or error}); create "
            "the folder, or give another one as --slot-save-path"
        ) from error


def read_template(path: str | os.PathLike[str]) -> ChatTemplate:
    """The chat template of a file. Raises: InputError."""
    from trinity.formats.defaults import ChatTemplate

    try:
        with open(path, encoding="utf-8-sig") as file:
            return ChatTemplate(file.read(), source=os.fspath(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{os.fspath(path)}: the chat template cannot be read ({_reason(error)}); give a text "
            "file"
        ) from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"


def read_keys(path: str | os.PathLike[str]) -> list[str]:
    """The keys of a file, one per line; empty lines are skipped. Raises: InputError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            keys = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{os.fspath(path)}: the API keys cannot be read ({_reason(error)}); give a text file "
            "with one key per line"
        ) from error
    keys = [key for key in keys if key]
    if not keys:
        raise InputError(f"{os.fspath(path)}: there is no API key in it; write one on a line")
    return keys
