"""Everything the package raises on purpose.

TrinityError
├── FormatError        a model file is malformed, truncated or contradicts itself
├── UnsupportedError   a well-formed file asks for something that trinity cannot run
├── ConfigError        the model's metadata gives no usable configuration
├── TokenizerError     the vocabulary, the chat template or a token id is unusable
├── InputError         an argument of the caller is out of range
│   └── ContextLengthError   the prompt does not fit the context
├── KernelError        an instruction-set level is unknown or not available here
└── ConfinedError      what ran in a confined process was stopped there
    └── ConfinedUnavailableError   the system did not let the process run
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TrinityError(Exception):
    """Base of all errors; its message says what was found, what was expected, what to do.

    It may quote a file's text as it is there, with its control characters; the command line shows
    those as escapes.
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

    def __init__(self, message: str = "", option: str | None = None) -> None:
        super().__init__(message)
        self.option = option  # the option that the argument was given for


class ContextLengthError(InputError):
    """The prompt does not fit the context; the message states both lengths.

    ``length`` and ``limit`` are the prompt's tokens and those that the context holds. Where a text
    is too long whatever its tokens are, it is not tokenized: ``length`` is how many it has at
    least.
    """

    def __init__(self, message: str, length: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.length = length
        self.limit = limit


class KernelError(TrinityError):
    """An instruction-set level is unknown or not available on this machine."""


class ConfinedError(TrinityError):
    """What ran in a confined process was stopped: memory, time, length of the answer, a signal.

    ``reason`` says which, as a clause that starts with "it".
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class ConfinedUnavailableError(ConfinedError):
    """The system did not let a confined process run; the same request may succeed later.

    There is no process or thread to spare, something outside killed the process, or the machine was
    too busy to give it processor time.
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
