"""All writing to standard output and standard error.

Text from a model file may contain escape sequences, newlines and marks that reverse the direction
of text; messages and tables show such characters as \\x1b. Writing to standard error never fails,
because a notice that nobody can receive is no reason to stop. A failure to write standard output is
an error, unless the reader has closed it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from trinity.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

# C0, DEL, C1, line and paragraph separators, marks of text direction, surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str, keep: str = "") -> str:
    """Escape the control characters in ``text``, except those in ``keep``."""

    def shown(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in keep else character.encode("unicode_escape").decode()

    return _CONTROL.sub(shown, text)


def json_line(value: object) -> str:
    """Format ``value`` as one line of JSON, with all characters that a terminal can show."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def say(text: str = "", keep: str = "", end: str = "\n", indent: int = 0) -> None:
    """Write a line to standard error; control characters in ``keep`` are our own.

    On a terminal, a line without such characters is wrapped between words; ``indent`` is that of
    all lines but the first.
    """
    stream = getattr(sys.stderr, "unescaped", sys.stderr)
    text = escaped(text, keep)
    if not keep and len(text) > 20 and sys.stderr.isatty():
        text = "\n".join(_wrapped(text, indent))
    print(text, end=end, file=stream, flush=True)


def say_explained(term: str, text: str, indent: int) -> None:
    """Write a term and what it means to standard error, the latter from column ``indent``.

    On a terminal that has too few columns for this, the explanation is below the term.
    """
    if sys.stderr.isatty() and _columns() < 2 * indent:
        say(term, indent=2)
        say(f"  {text}", indent=2)
    else:
        say(f"{term:<{indent - 1}} {text}", indent=indent)


def _columns() -> int:
    import shutil

    return max(20, shutil.get_terminal_size().columns)


def _wrapped(text: str, indent: int) -> list[str]:
    """Wrap a line between words; paths and addresses stay whole."""
    return textwrap.wrap(
        text,
        _columns(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def put(text: str = "", keep: str = "") -> None:
    """Write a line to standard output; control characters in ``keep`` are our own."""
    put_raw(escaped(text, keep) + "\n")


def put_raw(text: str, *, flush: bool = False) -> None:
    """Write to standard output unchanged. Raises InputError if that fails."""
    try:
        if text:  # an empty text would be written too, which a full device refuses
            sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(error) from error


def styled_stderr() -> Console:
    """Return standard error for displays with movement and colour."""
    from rich.console import Console

    return Console(file=getattr(sys.stderr, "unescaped", sys.stderr))


def take_streams() -> None:
    """Set the standard streams up as this module promises; once, when the process begins."""
    if sys.stdin is None:
        sys.stdin = _opened(0, "r")
    if sys.stdout is None:
        sys.stdout = _opened(1, "w")
    if sys.stderr is None:
        sys.stderr = _opened(2, "w")
    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):  # a terminal that lacks a character shows "?"
            output.reconfigure(errors="replace")
    sys.stderr = cast(TextIO, _Notices(sys.stderr))


def _opened(descriptor: int, mode: str) -> TextIO:
    return cast(TextIO, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def finish(status: int) -> int:
    """Flush standard output and return the exit code, which becomes 1 if that fails."""
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # where the interpreter's last flush goes
        with suppress(OSError, ValueError):
            os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if status == 0 and not isinstance(error, BrokenPipeError):
            say(f"error: {unwritable(error)}")
            return 1
    return status


def unwritable(error: OSError) -> InputError:
    """Return the error for a failure to write standard output."""
    return InputError(f"standard output: cannot be written: {error.strerror or error}")


class _Unfailing:
    """A text stream that ignores failures to write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Notices(_Unfailing):
    """Standard error that also escapes the control characters of other libraries' output."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.unescaped = _Unfailing(stream)

    def write(self, text: str) -> int:
        super().write(escaped(text, keep="\n"))
        return len(text)
