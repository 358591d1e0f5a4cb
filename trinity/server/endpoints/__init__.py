"""The table of all endpoints. A new API is a file with ENDPOINTS, and a name here."""

from __future__ import annotations

from trinity.server.endpoint import Endpoint
from trinity.server.endpoints import anthropic, chat_completions, health, responses

ENDPOINTS: tuple[Endpoint, ...] = (
    *health.ENDPOINTS,
    *chat_completions.ENDPOINTS,
    *responses.ENDPOINTS,
    *anthropic.ENDPOINTS,
)
