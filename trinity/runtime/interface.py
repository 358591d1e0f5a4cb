"""What runs above an engine need of it: one step over rows of several sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.runtime.page import COMMON, AdapterWeights, Domain

if TYPE_CHECKING:  # else every import of the API would load the compiler
    from trinity.runtime.kv_cache import KVCache
    from trinity.runtime.page_pool import PagePool


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a step that belong to one sequence."""

    cache: KVCache
    tokens: Sequence[int] | NDArray[np.integer]  # at the positions from cache.length on
    logits: int = 1  # how many of the last rows want logits
    # An array (tokens, hidden_size) for the hidden states after the output norm.
    states: NDArray[np.float32] | None = None
    second: int | None = None  # the row at which the second text of a pair begins, for encoders
    # Whether the cache can be cut after any of the rows. With recurrent layers at most
    # ``cache.most_revocable`` rows after the first can be revoked.
    revocable: bool = False
    # The token after the rows, -1 if unknown; given if a drafting layer is to learn from them.
    following: int | None = None
    # Whether the rows are of a prompt: their bits do not depend on how it is cut.
    prompt: bool = False


class Engine(Protocol):
    """A loaded model that maps token ids to logits."""

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants of the model."""
        ...

    @property
    def context_length(self) -> int:
        """The most positions that a sequence has."""
        ...

    @property
    def threads(self) -> int:
        """Threads that compute."""
        ...

    @property
    def isa(self) -> str:
        """The instruction-set level in use."""
        ...

    @property
    def kv_type(self) -> str:
        """The element type of keys and values, unless another is asked for: F16 or F32."""
        ...

    @property
    def prefill_chunk(self) -> int:
        """The most rows that one step takes."""
        ...

    @property
    def encodes(self) -> bool:
        """Whether it is an encoder: a step takes whole texts, and gives their states, no logits."""
        ...

    @property
    def drafts(self) -> bool:
        """Whether the file has a layer that proposes tokens."""
        ...

    @property
    def few(self) -> int:
        """The most rows of a step that costs little more than a step of one row."""
        ...

    @property
    def pool(self) -> PagePool:
        """The pages of all its caches."""
        ...

    @property
    def adapters(self) -> tuple[tuple[str, float], ...]:
        """The path of each adapter, and its weight where a request does not say it."""
        ...

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> AdapterWeights:
        """The weights of all adapters that ``wanted`` means, by number; None: as loaded.

        () where none is used. Raises: InputError for a number that no adapter has.
        """
        ...

    @property
    def fingerprint(self) -> str:
        """The same for two engines only where they have the same weights and adapters."""
        ...

    @property
    def rounding(self) -> str:
        """The same for two engines of one fingerprint where prompts have the same bits in both."""
        ...

    def new_cache(
        self, kv_type: str | None = None, adapters: AdapterWeights | None = None,
        domain: Domain = COMMON,
    ) -> KVCache:  # fmt: skip
        """An empty cache, of the engine's element type or another (F16, F32).

        ``adapters``: the weights with which its tokens are evaluated, of ``adapter_weights``;
        None: as loaded. ``domain``: it shares with caches of that domain alone.
        """
        ...

    def renew_pool(self) -> None:
        """Begin with an empty pool: the caches so far are those of the process that forked."""
        ...

    def step(
        self, batch: Sequence[Rows], *, exact: bool = False, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Evaluate rows of several sequences in one pass over the weights.

        All caches are different and of one element type; the step appends to each the tokens of its
        rows. ``exact``: each row gets the bits that it gets in a step of its own; ternary weights
        do so anyway.
        Shapes: returns (n, vocab) for the n rows whose logits are wanted, in the order of
        ``batch``: the first rows of ``out`` if it was given, else a new array.
        Raises: InputError, ContextLengthError; TrinityError where no page is left for a sequence
        (``KVCache.reserve`` tells before) or the model's file is damaged.
        """
        ...

    def draft(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool]
    ) -> list[int]:
        """Tokens that may come behind ``tokens``, by that layer; at most ``most``.

        The newest step was of ``cache``, which holds all of them but the last. ``wants`` says of
        each, by the probability that the layer gives it, whether it is wanted; the first that is
        not ends them. [] where there is no such layer, no room, or the newest step was of others.
        """
        ...

    def close(self) -> None:
        """End the threads and free all memory; of the engine only what it is like can be asked."""
        ...
