"""A router for comparison: it draws the replica."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ray.serve.request_router import RequestRouter


class RandomRouter(RequestRouter):  # type: ignore[misc]
    """Sends each request to any replica."""

    async def choose_replicas(
        self, candidate_replicas: Sequence[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """Return the replicas in random order."""
        return [[one] for one in random.sample(candidate_replicas, len(candidate_replicas))]
