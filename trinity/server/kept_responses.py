"""Responses that are kept in memory, for requests that refer to them by their names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trinity.conversation.names import random_name
from trinity.server.errors import ApiError
from trinity.server.owner import part_of

MOST_RESPONSES = 256
MOST_BYTES = 64 << 20  # of all owners together
LEAST_RESPONSES, LEAST_BYTES = 8, 2 << 20  # of each owner


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response as JSON, the items of its request, and the conversation that it ends.

    ``size``: bytes of all these, those of earlier responses in the conversation included.
    """

    body: bytes
    input: Sequence[dict[str, Any]]
    conversation: Sequence[dict[str, Any]]
    size: int


class KeptResponses:
    """The newest responses, as many as there is room for. Not kept when the server ends."""

    def __init__(self, most: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._bytes = 0

    def keep(
        self, name: str, body: bytes, given: Sequence[dict[str, Any]], before: KeptResponse | None
    ) -> None:
        """Keep the response ``body`` to the items ``given``, which followed those of ``before``."""
        given = [{"id": f"msg_{random_name()}", **item} for item in given]
        earlier = () if before is None else before.conversation
        output = msgspec.json.decode(body)["output"]
        size = len(body) + len(msgspec.json.encode(given)) + (before.size if before else 0)
        if size > self._most_bytes:
            return
        self._kept[name] = KeptResponse(body, given, [*earlier, *given, *output], size)
        self._bytes += size
        while self._bytes > self._most_bytes or len(self._kept) > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size

    def find(self, name: str, param: str | None = None) -> KeptResponse:
        """The response of a name. Raises: ApiError 404, or 400 about the parameter ``param``."""
        found = self._kept.get(name)
        if found is None:
            told = f"there is no response {name!r:.100}: it was not stored, or is too old"
            raise ApiError(
                404 if param is None else 400, told, param,
                None if param is None else "previous_response_not_found",
            )  # fmt: skip
        self._kept.move_to_end(name)
        return found

    def drop(self, name: str) -> None:
        """Forget a response. Raises: ApiError 404."""
        self._bytes -= self.find(name).size
        del self._kept[name]

    def resolved(self, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Items, with those of kept responses in place of references to them.

        Raises: ApiError for a reference to one that is not kept.
        """
        return [
            self._item(item.get("id"), f"input[{number}].id")
            if item.get("type") == "item_reference"
            else item
            for number, item in enumerate(items)
        ]

    def _item(self, name: object, where: str) -> dict[str, Any]:
        for one in reversed(self._kept.values()):
            for item in one.conversation:
                if item.get("id") == name and name is not None:
                    return item
        raise ApiError(400, f"{where}: there is no item {name!r:.100} in a stored response", where)


def part_of_responses(owners: int) -> KeptResponses:
    """The responses of one of so many owners, who may have equal parts of all."""
    return KeptResponses(
        part_of(MOST_RESPONSES, owners, LEAST_RESPONSES), part_of(MOST_BYTES, owners, LEAST_BYTES)
    )
