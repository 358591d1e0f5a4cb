"""Read a command's text from an option, a file or standard input."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from trinity.cli.parameters import BadParameter
from trinity.errors import InputError

if TYPE_CHECKING:
    from trinity.formats.defaults import ChatTemplate

STDIN = "-"


def given_text(
    text: str | None, file: str | None = None, *, what: str, usage: str, longest: int | None = None
) -> str:
    """Return the text, or that of ``file``, or of standard input for "-" and if it is piped.

    ``longest`` limits the file's size in bytes. Raises a usage error if two are given, or none;
    InputError if the text is not UTF-8, too long or cannot be read.
    """
    if text is not None and file is not None:
        raise BadParameter(f"the {what} is given twice; {usage}")
    if text is not None and text != STDIN:
        return from_argument(text, what)
    if file is not None and file != STDIN:
        try:
            with open(file, "rb") as opened:
                data = opened.read() if longest is None else opened.read(longest + 1)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{file}: cannot be read ({reason}); give a text file") from error
        if longest is not None and len(data) > longest:
            raise InputError(
                f"{file}: has more than {longest} bytes, the limit for a {what}; {usage}"
            )
        return decoded(data, file)
    if text is None and file is None and sys.stdin.isatty():
        raise BadParameter(f"there is no {what}; {usage}")
    try:
        return decoded(sys.stdin.buffer.read(), "standard input")
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"standard input: cannot be read ({reason})") from error


def from_argument(text: str, what: str) -> str:
    """Return a text of the command line. Raises InputError if its bytes are not UTF-8.

    Python keeps bytes that the system's locale cannot decode as surrogates.
    """
    try:
        return text if text.isascii() else os.fsencode(text).decode("utf-8")
    except UnicodeError:
        pass
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            f"the {what} is not UTF-8 text: {ascii(text)[:80]}; set the terminal's encoding (LANG) "
            "to UTF-8, or give the text in a file"
        ) from None
    return text


def one_of(argument: str | None, flagged: str | None, what: str) -> str | None:
    """Return a text that may be an argument or --prompt. Raises a usage error for both."""
    if argument is not None and flagged is not None:
        raise BadParameter(f"the {what} is given twice: as an argument and with --prompt")
    return flagged if argument is None else argument


def named_source(file: str | None) -> str:
    """Return the name of the source of ``given_text``, for errors."""
    return "standard input" if file in (None, STDIN) else file


def decoded(data: bytes, source: str) -> str:
    """Decode UTF-8, without a byte order mark. Raises InputError with the position of the fault."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source}: byte {error.start} is {data[error.start]:#04x}, which is not UTF-8 text; "
            "convert it to UTF-8"
        ) from None


def given_template(file: str) -> ChatTemplate:
    """Read a chat template from a file, or from standard input for "-"."""
    from trinity.formats.defaults import ChatTemplate
    from trinity.tokenizers.chat import LONGEST_TEMPLATE

    longest = 4 * LONGEST_TEMPLATE  # in bytes of UTF-8
    text = given_text(None, file, what="template", usage="give another file", longest=longest)
    return ChatTemplate(text, source=file)
