"""Routes a request to the replica that has computed the longest beginning of its prompt."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from ray.serve.request_router import RequestRouter

from trinity.ray.calls import Generation

MOST_KNOWN = 100_000  # prefixes, of 32 tokens each
SLACK = 4  # how many more requests than the least busy replica it may have


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Prefers the replica that computed the longest prefix of the prompt, unless it is busy.

    The others follow by their number of requests. Each process that routes has its own memory of
    what it has sent. A replica that ends is forgotten with it.
    """

    def initialize_state(self, **given: Any) -> None:
        """Begin without knowledge of earlier requests."""
        self._sent_to: OrderedDict[bytes, Any] = OrderedDict()  # replica by hash of a prefix
        self._running: Counter[Any] = Counter()  # requests by replica

    async def choose_replicas(
        self, candidate_replicas: Sequence[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        """Return the replicas, one at each rank."""
        ranked = sorted(candidate_replicas, key=lambda replica: self._queue(replica.replica_id))
        if not ranked:
            return []
        if pending_request is not None:  # pause if all replicas are full
            pending_request.routing_context.should_backoff = True
        by_id = {replica.replica_id: replica for replica in ranked}
        for prefix in reversed(prefixes_of_request(pending_request)):
            known = by_id.get(self._sent_to.get(prefix))
            if known is not None:
                least = self._queue(ranked[0].replica_id)
                if self._queue(known.replica_id) <= least + SLACK:
                    ranked.remove(known)
                    ranked.insert(0, known)
                break
        return [[replica] for replica in ranked]

    def _queue(self, replica_id: Any) -> int:
        """Return the requests of a replica, as far as they are known."""
        known = self.replica_queue_len_cache.get(replica_id)
        return max(self._running[replica_id], known or 0)

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        """Remember where a prompt is computed."""
        self._running[replica_id] += 1
        for prefix in prefixes_of_request(pending_request):
            self._sent_to[prefix] = replica_id
            self._sent_to.move_to_end(prefix)
        while len(self._sent_to) > MOST_KNOWN:
            self._sent_to.popitem(last=False)

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        """Count a request as ended."""
        self._running[replica_id] -= 1


def prefixes_of_request(request: Any) -> tuple[bytes, ...]:
    """Return the prefixes of a generation; other requests have none."""
    given = request.args[0] if request is not None and request.args else None
    return given.prefixes if isinstance(given, Generation) else ()
