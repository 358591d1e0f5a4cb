"""A sequence of tokens that the scheduler evaluates, for whatever is made of their logits.

Once it is submitted it belongs to the engine thread; only ``cancel`` is for others.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ContextLengthError
from trinity.runtime.generation import FinishReason
from trinity.runtime.inbox import Sink
from trinity.runtime.memory import too_little_memory
from trinity.runtime.page import COMMON, AdapterWeights, Domain

if TYPE_CHECKING:
    from trinity.runtime.cancel import Cancel
    from trinity.runtime.kv_cache import KVCache
    from trinity.runtime.mask_thread import MaskThread

Logits = NDArray[np.float32]
States = NDArray[np.float32]  # (n, hidden size), behind the output norm
LAST = 1000  # the priority from which on a sequence yields


class Sequence(ABC):
    """Tokens of which the first ``cache.length`` are evaluated; without a cache it waits.

    ``first`` is the place from which on logits are wanted. ``kv_type`` None means the engine's.
    ``shares`` says whether it may use pages that other sequences have filled. The one with the
    smallest ``rank`` has precedence: by priority, then its client's turn, then arrival.
    ``adapters``: their weights; None: as loaded. It shares with others of its ``domain`` alone. One
    that is ``of_states`` goes on by the hidden states of all its tokens, and no logits are computed
    for it. ``whole``: all its tokens are evaluated in one step. ``second``: where the second text
    of a pair begins.
    """

    of_states = False
    whole = False
    second: int | None = None

    def __init__(
        self, tokens: list[int], sink: Sink, *, kv_type: str | None = None, shares: bool = False,
        priority: int = 0, cancel: Cancel | None = None, adapters: AdapterWeights | None = None,
        domain: Domain = COMMON,
    ) -> None:  # fmt: skip
        self.tokens = tokens
        self.kv_type = kv_type
        self.shares = shares
        self.adapters = adapters
        self.domain = domain
        self.priority = priority
        self.arrival = 0
        self.turn = (0, 0)  # of its client, noted before each step
        self.client = ""  # who sent it; clients take turns
        self.cache: KVCache | None = None
        self.ended = False
        self._sink = weakref.ref(sink)
        self._cancel = cancel
        self._cancelled = False

    @property
    @abstractmethod
    def first(self) -> int:
        """The place of the first token whose logits are wanted."""

    @abstractmethod
    def advance(self, logits: Logits) -> None:
        """Go on by the logits (n, vocab) of the newest n evaluated tokens, or by their states.

        Keep no view of them.
        """

    @abstractmethod
    def finish(self, reason: FinishReason) -> None:
        """End before it would have ended by itself."""

    def evaluated(self) -> None:
        """Note that some of its tokens are evaluated, of which no logits were wanted."""
        return

    @property
    def running(self) -> bool:
        """Whether somebody waits for its next token, before which few have to be evaluated."""
        return False

    @property
    def guessed(self) -> bool:
        """Whether tokens are to be proposed for it."""
        return False

    @property
    def yields(self) -> bool:
        """Whether it stands still while there are others that do not."""
        return self.priority >= LAST

    @property
    def rank(self) -> tuple[int, tuple[int, int], int]:
        """What it has precedence by."""
        return self.priority, self.turn, self.arrival

    @property
    def pending(self) -> int:
        """How many of its tokens are not evaluated."""
        return len(self.tokens) - (0 if self.cache is None else self.cache.length)

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants it any more."""
        if self._cancelled or self._sink() is None:
            return True
        return self._cancel is not None and self._cancel.is_set()

    def cancel(self) -> None:
        """End it before its next step, from any thread."""
        self._cancelled = True

    def prepare(self, mask_thread: MaskThread) -> None:
        """Begin what can be computed while the step runs after which ``advance`` comes."""
        return

    def submitted(self, arrival: int, client: str = "") -> None:
        """Note its place among those of its priority, and whose it is."""
        self.arrival, self.client = arrival, client

    def start(self, cache: KVCache) -> None:
        """Be evaluated in ``cache``, which may hold the first tokens already."""
        self.cache = cache

    def release(self) -> None:
        """Give the pages back; what they held will be evaluated again."""
        if self.cache is not None:
            self.cache.release()
            self.cache = None

    def rows_of_step(self, rows: int, logits: int) -> tuple[int, int]:
        """How many tokens a step takes, and of how many logits are wanted, given room for both."""
        assert self.cache is not None
        start = self.cache.length
        if self.whole and rows < len(self.tokens):
            return 0, 0
        if self.of_states:
            return min(rows, len(self.tokens) - start), 0
        without = max(self.first - start, 0)
        count = min(rows, len(self.tokens) - start, without + logits)
        return count, max(count - without, 0)

    def fail(self, error: BaseException) -> None:
        """End by an exception, which is raised where the result is waited for."""
        if isinstance(error, MemoryError):
            refused, error = error, too_little_memory(error, "for a call")
            error.__cause__ = refused
        self.end(error)

    def end(self, item: Any) -> None:
        """Give the last result; pages are back before anybody sees it."""
        self.ended = True
        if self.cache is not None:
            self.cache.remember()
        self.release()
        self.give(item)

    def give(self, item: Any) -> None:
        """Put a result where it is waited for."""
        sink = self._sink()
        if sink is not None:
            sink.put(item)


def check_context(length: int, context_length: int, *, least: bool = False) -> None:
    """Raise ContextLengthError where ``length`` tokens, or that many at least, do not fit."""
    if length > context_length:
        count = f"at least {length}" if least else length
        raise ContextLengthError(
            f"the prompt has {count} tokens, but the context holds {context_length}: shorten the "
            "prompt, or load the model with a larger context_length (--ctx) if it supports one",
            length,
            context_length,
        )
