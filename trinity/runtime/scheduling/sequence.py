"""A sequence of tokens that the scheduler computes, whatever its logits are used for.

After its submission it belongs to the engine thread; other threads may only call ``cancel``.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ContextLengthError
from trinity.runtime.generation import FinishReason
from trinity.runtime.image_rows import ImageRows, whole_images
from trinity.runtime.memory import too_little_memory
from trinity.runtime.pages.page import COMMON, AdapterWeights, Domain
from trinity.runtime.scheduling.inbox import Sink

if TYPE_CHECKING:
    from trinity.runtime.interface import Best
    from trinity.runtime.options import Cancel
    from trinity.runtime.pages.kv_cache import KVCache
    from trinity.runtime.sampling.mask_thread import MaskThread

Logits = NDArray[np.float32]
States = NDArray[np.float32]  # (n, hidden size), after the output norm
LAST = 1000  # sequences with this priority or a higher number yield


class Sequence(ABC):
    """Tokens, of which the first ``cache.length`` are computed; a sequence without a cache waits.

    ``first``: the index from which logits are needed. ``kv_type``: None means the engine's.
    ``shares``: whether it may use pages that other sequences have filled. The sequence with the
    smallest ``rank`` has precedence: by priority, then the client's turn, then arrival.
    ``adapters``: their scales; None: the defaults. It shares pages only within its ``domain``. With
    ``of_states`` it receives the hidden states of all its tokens instead of logits. ``whole``: all
    its tokens are computed in one step. ``second``: the index where the second text of a pair
    begins. ``images``: the rows that replace embeddings of tokens.
    """

    of_states = False
    whole = False
    second: int | None = None
    images: tuple[ImageRows, ...] = ()

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
        self.turn = (0, 0)  # the turn of its client, set before each step
        self.client = ""  # who sent it; clients take turns
        self.cache: KVCache | None = None
        self.ended = False
        self._sink = weakref.ref(sink)
        self._cancel = cancel
        self._cancelled = False

    @property
    @abstractmethod
    def first(self) -> int:
        """The index of the first token whose logits are needed."""

    @abstractmethod
    def advance(self, logits: Logits) -> None:
        """Continue with the logits (n, vocab), or hidden states, of the newest n computed tokens.

        Implementations must not keep a view of them.
        """

    @abstractmethod
    def finish(self, reason: FinishReason) -> None:
        """End early."""

    def evaluated(self) -> None:
        """Called when some of its tokens are computed whose logits were not needed."""
        return

    @property
    def generating(self) -> bool:
        """Whether its next token is awaited and only few tokens have to be computed before it."""
        return False

    @property
    def speculates(self) -> bool:
        """Whether tokens are speculated for this sequence."""
        return False

    @property
    def yields(self) -> bool:
        """Whether it pauses while there are sequences that do not yield."""
        return self.priority >= LAST

    @property
    def rank(self) -> tuple[int, tuple[int, int], int]:
        """The order of precedence; the smallest comes first."""
        return self.priority, self.turn, self.arrival

    @property
    def pending(self) -> int:
        """The number of tokens that are not computed."""
        return len(self.tokens) - (0 if self.cache is None else self.cache.length)

    @property
    def cancelled(self) -> bool:
        """Whether the caller has cancelled it."""
        if self._cancelled or self._sink() is None:
            return True
        return self._cancel is not None and self._cancel.is_set()

    def cancel(self) -> None:
        """End it before its next step; any thread may call this."""
        self._cancelled = True

    def best(self, proposals: list[int]) -> Best | None:
        """Which logits ``advance`` needs of each row, if the newest tokens are followed by
        ``proposals``; None: all.
        """
        return None

    def prepare(self, mask_thread: MaskThread) -> None:
        """Start work that can run during the step before ``advance``."""
        return

    def submitted(self, arrival: int, client: str = "") -> None:
        """Note its order of arrival and its client."""
        self.arrival, self.client = arrival, client

    def start(self, cache: KVCache) -> None:
        """Start in ``cache``, which may hold the first tokens already."""
        self.cache = cache

    def release(self) -> None:
        """Give the pages back; their tokens will be computed again."""
        if self.cache is not None:
            self.cache.release()
            self.cache = None

    def rows_of_step(self, *, rows: int, logits: int, image_rows: int) -> tuple[int, int]:
        """How many tokens a step takes, and how many of their logits are needed.

        ``rows`` and ``logits`` limit them; ``image_rows`` limits the rows of a step that takes an
        image that cannot be divided.
        """
        assert self.cache is not None
        start = self.cache.length
        if self.whole and rows < len(self.tokens):
            return 0, 0
        if self.of_states:
            return min(rows, len(self.tokens) - start), 0
        without = max(self.first - start, 0)
        count = min(rows, len(self.tokens) - start, without + logits)
        if self.images:
            count = whole_images(self.images, start, count, image_rows)
        return count, max(count - without, 0)

    def fail(self, error: BaseException) -> None:
        """End with an exception, which is raised in the caller."""
        if isinstance(error, MemoryError):
            refused, error = error, too_little_memory(error, "for a call")
            error.__cause__ = refused
        self.end(error)

    def end(self, item: Any) -> None:
        """Deliver the last result, after the pages were given back."""
        self.ended = True
        if self.cache is not None:
            self.cache.remember()
        self.release()
        self.give(item)

    def give(self, item: Any) -> None:
        """Deliver a result."""
        sink = self._sink()
        if sink is not None:
            sink.put(item)


def check_context(length: int, context_length: int, *, least: bool = False) -> None:
    """Raise ContextLengthError if ``length`` tokens do not fit. ``least``: the length is a lower
    bound.
    """
    if length > context_length:
        count = f"at least {length}" if least else length
        raise ContextLengthError(
            f"the prompt has {count} tokens, but the context holds {context_length}: shorten the "
            "prompt, or load the model with a larger context_length (--ctx) if it supports one",
            length,
            context_length,
        )
