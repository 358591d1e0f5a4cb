"""The exceptions that the package raises on purpose.

TrinityError
├── FormatError
├── UnsupportedError
├── ConfigError
├── TokenizerError
├── InputError
│   └── ContextLengthError
├── KernelError
└── ConfinedError
    └── ConfinedUnavailableError
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TrinityError(Exception):
    """The base of all errors. The message says what was found, what was expected, what to do.

    The message may quote text of a model file with its control characters; the command line
    escapes them.
    """


class FormatError(TrinityError):
    """A model file is malformed, truncated or contradicts itself."""


class UnsupportedError(TrinityError):
    """The file is well formed but asks for something that trinity cannot run."""


class ConfigError(TrinityError):
    """The model's metadata gives no usable configuration."""


class TokenizerError(TrinityError):
    """The vocabulary, the chat template or a token id is unusable."""


class InputError(TrinityError):
    """An argument of the caller is out of range."""

    option: str | None
    """The option that the argument was given for, or None."""

    def __init__(self, message: str = "", option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class ContextLengthError(InputError):
    """The prompt does not fit the context; the message states both lengths."""

    length: int
    """The number of tokens of the prompt.

    A text that is too long whatever its tokens are is not tokenized. This is then a lower bound.
    """
    limit: int
    """The number of tokens that fit the context."""

    def __init__(self, message: str, length: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.length = length
        self.limit = limit


class KernelError(TrinityError):
    """An instruction-set level is unknown or not available on this machine."""


class ConfinedError(TrinityError):
    """Code in a confined process was stopped: memory, time, length of the result or a signal."""

    reason: str
    """Which of these, as a clause that starts with "it"."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class ConfinedUnavailableError(ConfinedError):
    """The system did not let a confined process run; the same request may succeed later.

    No process or thread was available, something outside killed the process, or the machine was
    too busy.
    """


@contextmanager
def about(source: str, *names: str) -> Iterator[None]:
    """Begin errors about a model with ``source`` unless they name it or one of ``names``."""
    try:
        yield
    except (FormatError, UnsupportedError, ConfigError, TokenizerError, InputError) as error:
        text = str(error)
        if source and not any(name and name in text for name in (source, *names)):
            error.args = (f"{source}: {text}", *error.args[1:])
        raise
