"""A transport that joins writes, because each one is a system call that gives up the interpreter's
lock.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

# Bytes after which waiting writes are written without waiting for the next turn.
MOST_WAITING: Final = 16 << 10


class JoinedWrites(asyncio.Transport):
    """Joins the writes to ``transport`` until ``flush``, or until the event loop's next turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._has_turn = False  # the next turn of the loop calls ``_turn``

    def write(self, data: Any) -> None:
        """Write ``data``, which must not change, with the writes that wait."""
        self._waiting.append(data)
        self._size += len(data)
        if self._size >= MOST_WAITING:
            self.flush()
        elif not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._turn)

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            waiting, self._waiting, self._size = self._waiting, [], 0
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def _turn(self) -> None:
        self._has_turn = False
        self.flush()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait here and in the transport."""
        return self._size + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Write what waits, then close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close and drop what waits."""
        self._waiting.clear()
        self._size = 0
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or being closed."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information about the connection."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Receive nothing until ``resume_reading``."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._transport.resume_reading()
