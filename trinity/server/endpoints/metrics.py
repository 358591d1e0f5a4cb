"""Figures for Prometheus: GET /metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0, generate_latest
from starlette.responses import Response

from trinity.server.endpoint import ASGI, Call, Endpoint


async def metrics(call: Call[Any]) -> ASGI:
    """All figures, those of the moment too."""
    service = call.service
    service.metrics.look(service.models)
    text = generate_latest(service.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_1_0_0)


ENDPOINTS = (
    Endpoint("GET", "/metrics", metrics, "Figures for Prometheus.", media_type="text/plain"),
)
