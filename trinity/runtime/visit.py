"""A function call in the engine thread, between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity.errors import InputError
from trinity.runtime.inbox import Sink


class Visit:
    """A function that the engine thread calls between two steps; ``sink`` gets its result.

    All requests wait meanwhile, so it must not take longer than a step.
    """

    def __init__(self, function: Callable[[], object], sink: Sink) -> None:
        self._function = function
        self._sink = sink

    def make(self) -> None:
        """Call the function; the sink gets its result or its exception."""
        item: Any
        try:
            item = self._function()
        except BaseException as error:
            item = error
        self._sink.put(item)

    def refuse(self) -> None:
        """Refuse the call, because the model is closed."""
        self._sink.put(InputError("the model is closed; load it again"))
