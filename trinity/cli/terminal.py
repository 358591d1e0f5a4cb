"""The only way to standard output and standard error.

What a model file says may hold escape sequences, newlines and marks that turn text around: messages
and tables show such characters as \\x1b. Standard error never fails: a notice that nobody can
receive is no reason to stop. Standard output that cannot be written is an error, but for a reader
who has had enough.
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

# C0, DEL, C1, line and paragraph separators, what changes the direction of text, half characters.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str, keep: str = "") -> str:
    """``text`` with its control characters as escapes, but for those in ``keep``."""

    def shown(found: re.Match[str]) -> str:
        character = found[0]
        return character if character in keep else character.encode("unicode_escape").decode()

    return _CONTROL.sub(shown, text)


def json_line(value: object) -> str:
    """``value`` as one line of JSON that shows every character which a terminal can show."""
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str = "", keep: str = "", end: str = "\n") -> None:
    """Write a line to standard error; ``keep`` are control characters that are ours."""
    stream = getattr(sys.stderr, "unescaped", sys.stderr)
    print(escaped(text, keep), end=end, file=stream, flush=True)


def say_wrapped(text: str, indent: int = 0) -> None:
    """Write a line to standard error; to a terminal, cut between words where it is too long.

    ``indent`` is that of the lines after the first one.
    """
    if sys.stderr.isatty():
        import shutil

        width = max(40, shutil.get_terminal_size().columns)
        text = textwrap.fill(escaped(text), width, subsequent_indent=" " * indent)
        say(text, keep="\n")
    else:
        say(text)


def put(text: str = "", keep: str = "") -> None:
    """Write a line to standard output; ``keep`` are control characters that are ours."""
    put_raw(escaped(text, keep) + "\n")


def put_raw(text: str, *, flush: bool = False) -> None:
    """Write to standard output as it is. Raises InputError where that fails."""
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
    """Standard error for displays that move and colour."""
    from rich.console import Console

    return Console(file=getattr(sys.stderr, "unescaped", sys.stderr))


def take_streams() -> None:
    """Make the standard streams what this module promises; once, when the process begins."""
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
    """Flush standard output; the exit status, which is 1 where a success could not be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for the interpreter, which flushes again
        with suppress(OSError, ValueError):
            os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if status == 0 and not isinstance(error, BrokenPipeError):
            say(f"error: {unwritable(error)}")
            return 1
    return status


def unwritable(error: OSError) -> InputError:
    """What is raised where standard output fails."""
    return InputError(f"standard output: cannot be written: {error.strerror or error}")


class _Unfailing:
    """A text stream whose failures to write are nobody's concern."""

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
    """Standard error, which also shows the control characters of those who know no ``say``."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.unescaped = _Unfailing(stream)

    def write(self, text: str) -> int:
        super().write(escaped(text, keep="\n"))
        return len(text)
