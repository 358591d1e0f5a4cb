"""Errors and times in the format of Ollama's API."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from trinity.server.errors import ApiError, ErrorFamily


class OllamaError(msgspec.Struct):
    """The body of an error."""

    error: str


def ollama_error(error: ApiError) -> OllamaError:
    """Convert an error; Ollama's format names the parameter only in the message."""
    named = error.param is None or error.param in error.message
    return OllamaError(error.message if named else f"{error.param}: {error.message}")


OLLAMA = ErrorFamily(
    "Ollama", ollama_error, OllamaError, lambda body: body + b"\n", prefixes=("/api/",)
)


def now() -> str:
    """Return the current time."""
    return timestamp(datetime.now(UTC))


def timestamp(time: datetime) -> str:
    """Format a time in UTC as RFC 3339."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
