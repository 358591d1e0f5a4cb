"""The server's log lines, as text or as one JSON object per line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from trinity.server.dispatch import FIELDS
from trinity.server.security import REQUEST_ID

Say = Callable[[str], None]
log = logging.getLogger("trinity.server")


def log_to(say: Say, *, requests: bool, json: bool) -> Say:
    """Write log records by ``say``; with ``requests`` also one per request, with ``json`` as JSON.

    Returns the function that writes the server's other lines in the same form.
    """
    if not (requests or json):
        return say
    log.setLevel(logging.INFO if requests else logging.WARNING)
    handler = Lines(say)
    if json:
        handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.propagate = False
    return (lambda line: say(line_of("info", line))) if json else say


class Lines(logging.Handler):
    """Writes records by a function."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._say(self.format(record))


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The object of a record."""
        more: dict[str, Any] = dict(getattr(record, FIELDS, {}))
        name = REQUEST_ID.get()
        if name:
            more["request_id"] = name
        if record.exc_info:
            more["exception"] = self.formatException(record.exc_info)
        return line_of(record.levelname.lower(), record.getMessage(), more, record.created)


def line_of(
    level: str, message: str, more: dict[str, Any] | None = None, at: float | None = None
) -> str:
    """The JSON object of a line; ``at`` is its time in seconds since the epoch, by default now."""
    time = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    fields = {"time": time.isoformat(timespec="milliseconds"), "level": level, "message": message}
    return msgspec.json.encode({**fields, **(more or {})}).decode()
