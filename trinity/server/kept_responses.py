"""Responses that are stored, so that requests can refer to them by id.

They are in memory; with a state folder also in files, which a later process reads.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from trinity.server.caller import part_of
from trinity.server.errors import ApiError
from trinity.server.response_files import KeptResponse, ResponseFiles

log = logging.getLogger("trinity.server")
MOST_RESPONSES = 256
MOST_BYTES = 64 << 20  # of all owners together
LEAST_RESPONSES, LEAST_BYTES = 8, 2 << 20  # of each owner
MOST_OF_CONNECTION = 8  # that are not stored, of one WebSocket
REFERENCE = "item_reference"
Run = Callable[..., Awaitable[Any]]  # runs a function in a thread that clients share


@dataclass(frozen=True, slots=True)
class RunningResponse:
    """A response in the background: its JSON so far, and the task that generates it."""

    body: Callable[[], bytes]
    task: asyncio.Task[None]


class KeptResponses:
    """The newest responses, as many as there is room for, and ``running`` ones.

    ``files``: where they are written, too; those that are there are read.
    """

    def __init__(
        self,
        most: int = MOST_RESPONSES,
        most_bytes: int = MOST_BYTES,
        files: ResponseFiles | None = None,
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._bytes = 0
        self._files = files
        self.running: dict[str, RunningResponse] = {}
        for name, response in files.read(most, most_bytes) if files is not None else ():
            self.keep(name, response)

    def keep(self, name: str, response: KeptResponse) -> list[str]:
        """Keep a response in memory; return the names of those that are dropped for it."""
        if response.size > self._most_bytes:
            return [name]
        replaced = self._kept.pop(name, None)
        self._kept[name] = response
        self._bytes += response.size - (replaced.size if replaced else 0)
        dropped = []
        while self._bytes > self._most_bytes or len(self._kept) > self._most:
            oldest, removed = self._kept.popitem(last=False)
            self._bytes -= removed.size
            dropped.append(oldest)
        return dropped

    async def store(self, run: Run, name: str, response: KeptResponse) -> None:
        """Keep a response, and write it if there is a folder."""
        dropped = self.keep(name, response)
        if self._files is None:
            return
        await run(self._files.remove, dropped)
        try:
            if name in self._kept:
                await run(self._files.write, name, response)
        except OSError as error:
            log.warning("response %s is only in memory, not in --state's folder: %s", name, error)
        if name not in self._kept:  # it was deleted meanwhile
            await run(self._files.remove, [name])

    async def hold(self, run: Run, name: str, response: KeptResponse) -> None:
        """Keep a response in memory only."""
        dropped = self.keep(name, response)
        if self._files is not None:
            await run(self._files.remove, dropped)

    async def begin(self, run: Run, name: str, response: KeptResponse) -> None:
        """Write a response that is in progress; a later process finds it as failed."""
        if self._files is not None:
            try:
                await run(self._files.write, name, response)
            except OSError as error:
                log.warning("response %s is not in --state's folder: %s", name, error)

    def find(self, name: str, param: str | None = None) -> KeptResponse:
        """The response of a name. Raises: ApiError 404, or 400 about the parameter ``param``."""
        response = self._kept.get(name)
        if response is None:
            told = f"there is no response {name!r:.100}: it was not stored, or is too old"
            if name in self.running:
                told = f"response {name} is in progress; wait until it is complete, or cancel it"
            raise ApiError(
                404 if param is None else 400,
                told,
                param,
                None if param is None else "previous_response_not_found",
            )
        self._kept.move_to_end(name)
        return response

    def get(self, name: str) -> KeptResponse | None:
        """The response of a name, or None."""
        return self.find(name) if name in self._kept else None

    def drop(self, name: str) -> None:
        """Delete a response from memory. Raises: ApiError 404."""
        self._bytes -= self.find(name).size
        del self._kept[name]

    async def delete(self, run: Run, name: str) -> None:
        """Delete a response. Raises: ApiError 404."""
        self.drop(name)
        if self._files is not None:
            await run(self._files.remove, [name])

    def close(self) -> None:
        """End the running responses."""
        for response in self.running.values():
            response.task.cancel()

    def newest_first(self) -> list[KeptResponse]:
        """Return all responses."""
        return list(reversed(self._kept.values()))


class ConnectionResponses:
    """The newest responses of a WebSocket whose requests say not to store them.

    They count like stored ones, but only the requests of this WebSocket can refer to them.
    """

    SCOPE: Final = "trinity.connection_responses"
    """In the scope of the WebSocket's requests: this object."""

    def __init__(self, kept: KeptResponses, most: int = MOST_OF_CONNECTION) -> None:
        self._kept = kept
        self._most = most
        self._prefix = f"{secrets.token_hex(16)}_"
        self._names = deque[str]()

    def get(self, name: str) -> KeptResponse | None:
        """The response of a name, or None."""
        return self._kept.get(self._prefix + name)

    async def store(self, run: Run, name: str, response: KeptResponse) -> None:
        """Keep a response; the oldest one is dropped if there are too many."""
        self._names.append(self._prefix + name)
        await self._kept.hold(run, self._prefix + name, response)
        if len(self._names) > self._most:
            self._drop_oldest()

    def close(self) -> None:
        """Drop all."""
        while self._names:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        name = self._names.popleft()
        if self._kept.get(name) is not None:
            self._kept.drop(name)


def part_of_responses(owners: int, files: ResponseFiles | None = None) -> KeptResponses:
    """Return the store of one owner; owners have equal parts of the limits."""
    return KeptResponses(
        part_of(MOST_RESPONSES, owners, LEAST_RESPONSES),
        part_of(MOST_BYTES, owners, LEAST_BYTES),
        files,
    )


def kept_response(
    body: bytes, given: Sequence[dict[str, Any]], before: KeptResponse | None
) -> KeptResponse:
    """Make the stored response of ``body`` to the items ``given``, which followed ``before``.

    Not for the event loop.
    """
    given = [{"id": f"msg_{secrets.token_hex(16)}", **item} for item in given]
    earlier = () if before is None else before.conversation
    output = msgspec.json.decode(body)["output"]
    size = len(body) + len(msgspec.json.encode(given)) + (before.size if before else 0)
    return KeptResponse(body, given, earlier, output, size)


def resolved(items: Sequence[dict[str, Any]], kept: Sequence[KeptResponse]) -> list[dict[str, Any]]:
    """Replace references to items by the items of stored responses.

    Not for the event loop. Raises: ApiError for a reference to an item that is not stored.
    """
    wanted = {str(item.get("id")) for item in items if _is_reference(item)}
    known: dict[str, dict[str, Any]] = {}
    for response in kept if wanted else ():
        for item in response.conversation:
            name = item.get("id")
            if isinstance(name, str) and name in wanted:
                known.setdefault(name, item)
    made = []
    for number, item in enumerate(items):
        if _is_reference(item):
            name, where = str(item.get("id")), f"input[{number}].id"
            if name not in known:
                told = f"{where}: there is no item {name!r:.100} in a stored response"
                raise ApiError(400, told, where)
            item = known[name]
        made.append(item)
    return made


def _is_reference(item: dict[str, Any]) -> bool:
    """Whether an item is a reference; it may have no type."""
    return item.get("type") == REFERENCE or (item.keys() <= {"id", "type"} and "id" in item)
