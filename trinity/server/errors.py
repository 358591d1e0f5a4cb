"""Errors of requests, in the form of each family of APIs.

A handler raises ``ApiError``, or lets the package's own errors pass. The endpoint's family of APIs
turns them into the body of the response, also for unknown paths, wrong methods and wrong keys.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trinity.errors import (
    ConfigError,
    ConfinedUnavailableError,
    ContextLengthError,
    FormatError,
    InputError,
    TokenizerError,
    TrinityError,
    UnsupportedError,
)

# OpenAI's words for the kinds of errors.
TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 405: "invalid_request_error", 408: "timeout_error",
    413: "invalid_request_error", 415: "invalid_request_error", 429: "rate_limit_error",
    501: "not_supported_error", 503: "unavailable_error", 504: "timeout_error",
}  # fmt: skip

# Error numbers of OSError: the system has too few resources.
SHORTAGES = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
RETRY_SECONDS = 2


@dataclass
class ApiError(Exception):
    """An error response."""

    status: int
    message: str
    param: str | None = None  # JSON path of the parameter, without "$."
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields, such as counts
    kind: str | None = None  # overrides ``type`` in OpenAI's form

    def __str__(self) -> str:
        return self.message

    @property
    def type(self) -> str:
        """OpenAI's word for the kind of error."""
        return TYPES.get(self.status, "server_error" if self.status >= 500 else TYPES[400])


class ErrorBody(msgspec.Struct):
    """The body of an error."""

    message: str
    type: str
    param: str | None = None
    code: str | int | None = None
    n_prompt_tokens: int | msgspec.UnsetType = msgspec.UNSET
    n_ctx: int | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct):
    """An error in OpenAI's form."""

    error: ErrorBody


def openai_error(error: ApiError) -> ErrorAnswer:
    """OpenAI's form."""
    return ErrorAnswer(
        ErrorBody(
            error.message, error.kind or error.type, error.param, error.code, **dict(error.more)
        )
    )


def llama_error(error: ApiError) -> ErrorAnswer:
    """llama.cpp's form: OpenAI's with the status as ``code``."""
    answer = openai_error(error)
    answer.error.code = error.status
    return answer


def openai_event(body: bytes) -> bytes:
    """An error in a stream of data lines."""
    return b"data: %b\n\n" % body


@dataclass(frozen=True, slots=True)
class ErrorFamily:
    """The form of errors in one family of APIs."""

    name: str
    form: Callable[[ApiError], msgspec.Struct]  # makes the body
    schema: type[msgspec.Struct]  # of the body
    event: Callable[[bytes], bytes] = openai_event  # makes the last event of a failed stream
    prefixes: tuple[str, ...] = ()  # of unknown paths that belong to the family


_FOLDER = re.compile(r"^/(?:[^/:\n]+/)+")
OPENAI = ErrorFamily("OpenAI", openai_error, ErrorAnswer)
LLAMA = ErrorFamily("llama.cpp", llama_error, ErrorAnswer)


def api_error(error: BaseException) -> ApiError:
    """An exception as the error that a client gets; 500 without details for the server's own."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextLengthError):
        counts = {"n_prompt_tokens": error.length, "n_ctx": error.limit}
        # OpenAI's code; llama.cpp's words, which its clients look for.
        return ApiError(
            400, f"the request exceeds the available context size: {error}",
            code="context_length_exceeded", more=counts, kind="exceed_context_size_error",
        )  # fmt: skip
    if isinstance(error, InputError):
        return ApiError(400, without_folder(error), error.option)
    if isinstance(error, TokenizerError | UnsupportedError):
        return ApiError(400, without_folder(error))
    if isinstance(error, FormatError | ConfigError):
        return ApiError(503, f"the model cannot be used: {without_folder(error)}")
    if isinstance(error, TimeoutError):
        return ApiError(504, "the request exceeded the server's time limit")
    if isinstance(error, MemoryError):
        return unavailable("there is too little memory for the request at the moment")
    if isinstance(error, ConfinedUnavailableError):
        return unavailable(str(error))
    if is_shortage(error):
        return unavailable(f"the system gives no more threads, processes or files: {error}")
    if isinstance(error, TrinityError):
        return ApiError(500, without_folder(error))
    return ApiError(500, "internal server error; the server's output has the details")


def without_folder(error: TrinityError) -> str:
    """The text of an error; a file that it begins with is named without its folder.

    Where the server's files are does not concern its clients.
    """
    return _FOLDER.sub("", str(error))


def unavailable(message: str) -> ApiError:
    """Return the error for a temporary failure; the client may try again."""
    return ApiError(503, message, headers={"Retry-After": str(RETRY_SECONDS)})


def is_shortage(error: BaseException) -> bool:
    """Whether the system refused a thread, a process, a descriptor or memory."""
    if isinstance(error, OSError):
        return error.errno in SHORTAGES
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)
