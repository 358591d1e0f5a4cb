"""Errors and times as Ollama's API has them."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from trinity.server.errors import ApiError, ErrorFamily


class OllamaError(msgspec.Struct):
    """An error."""

    error: str


def ollama_error(error: ApiError) -> OllamaError:
    """An error in Ollama's form, which names a parameter in the message alone."""
    named = error.param is None or error.param in error.message
    return OllamaError(error.message if named else f"{error.param}: {error.message}")


OLLAMA = ErrorFamily(
    "Ollama", ollama_error, OllamaError, lambda body: body + b"\n", prefixes=("/api/",)
)


def now() -> str:
    """The time, as answers have it."""
    return timestamp(datetime.now(UTC))


def timestamp(time: datetime) -> str:
    """RFC 3339, in UTC."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
