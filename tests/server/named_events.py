"""Streams with named events, checked with the types of the official clients."""

from __future__ import annotations

from typing import Any

from tests.server.asgi import strict


def named_events(stream: bytes) -> list[Any]:
    """Return the data of all events; its type must be the event's name."""
    found = []
    for block in stream.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = strict(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found
