"""Errors in the format of Anthropic's API."""

from __future__ import annotations

import msgspec

from trinity.server.errors import ApiError, ErrorFamily
from trinity.server.stream import event

TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error",
    503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


class ErrorDetail(msgspec.Struct):
    """The type and message of an error."""

    type: str
    message: str


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """The body of an error."""

    error: ErrorDetail


def anthropic_error(error: ApiError) -> AnthropicError:
    """Convert an error; Anthropic's format names the parameter only in the message."""
    message = error.message
    if error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    other = "api_error" if error.status >= 500 else TYPES[400]
    return AnthropicError(ErrorDetail(TYPES.get(error.status, other), message))


ANTHROPIC = ErrorFamily(
    "Anthropic", anthropic_error, AnthropicError, lambda body: event("error", body),
    prefixes=("/v1/messages",),
)  # fmt: skip
