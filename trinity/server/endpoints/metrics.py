"""Figures for Prometheus: GET /metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0
from starlette.responses import Response

from trinity.server.endpoint import ASGI, Call, Endpoint


async def metrics(call: Call[Any]) -> ASGI:
    """Return all metrics, including the current values."""
    figures = call.service.metrics
    return Response(
        await call.run(figures.text, call.service.models),
        media_type=CONTENT_TYPE_PLAIN_1_0_0,
        headers={"Process-Start-Time-Unix": str(figures.began)},
    )


ENDPOINTS = (
    Endpoint("GET", "/metrics", metrics, "Figures for Prometheus.", media_type="text/plain"),
)
