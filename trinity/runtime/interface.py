"""The interface of an engine: one step computes rows of several sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.runtime.image_rows import ImageRows
from trinity.runtime.pages.page import COMMON, AdapterWeights, Domain

if TYPE_CHECKING:  # otherwise every import of the API would load the compiler
    from trinity.runtime.pages.kv_cache import KVCache
    from trinity.runtime.pages.page_pool import PagePool

PREFILL_CHUNK = 512  # most rows of a step


@dataclass(frozen=True, slots=True)
class Best:
    """The logits of a row that a caller needs: all others may be -inf."""

    count: int  # how many of the largest logits, of tokens that are not in ``also``
    also: NDArray[np.int64]  # tokens, sorted, each of them once


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a step that belong to one sequence."""

    cache: KVCache
    tokens: Sequence[int] | NDArray[np.integer]  # their positions start at cache.length
    logits: int = 1  # the number of last rows whose logits are needed
    # An array (tokens, hidden_size) that receives the hidden states after the output norm.
    states: NDArray[np.float32] | None = None
    second: int | None = None  # for encoders: the row where the second text of a pair begins
    # Whether the cache can be truncated after any of the rows. With recurrent layers, at most
    # ``cache.most_revocable`` rows after the first can be revoked.
    revocable: bool = False
    # The token after the rows, -1 if unknown. It is given if the drafting layer is to use them.
    following: int | None = None
    # Whether the rows belong to a prompt: then their bits do not depend on how it is divided.
    prompt: bool = False
    # Which logits of each row are needed; None: all of them.
    best: Best | None = None
    # The images of the sequence, whose rows replace embeddings of tokens.
    images: tuple[ImageRows, ...] = ()


class Engine(Protocol):
    """A loaded model that computes logits for token ids."""

    @property
    def config(self) -> ModelConfig:
        """Sizes and constants of the model."""
        ...

    @property
    def context_length(self) -> int:
        """The maximum number of positions of a sequence."""
        ...

    @property
    def threads(self) -> int:
        """The number of threads that compute."""
        ...

    @property
    def isa(self) -> str:
        """The instruction-set level in use."""
        ...

    @property
    def kv_type(self) -> str:
        """The default type of keys and values: F16, Q8_0 or F32."""
        ...

    @property
    def prefill_chunk(self) -> int:
        """The maximum number of rows of a step."""
        ...

    @property
    def encodes(self) -> bool:
        """Whether the model is an encoder: steps compute hidden states of whole texts."""
        ...

    @property
    def drafts(self) -> bool:
        """Whether a layer of the file (multi-token prediction) or a draft model proposes tokens."""
        ...

    @property
    def few(self) -> int:
        """The number of rows of a step that costs little more than a step of one row."""
        ...

    @property
    def pool(self) -> PagePool:
        """The pool that all KV caches take their pages from."""
        ...

    @property
    def other_bytes(self) -> int:
        """Bytes other than the model's weights and its KV cache: a sketch of the output head, which
        may be made later, and a draft model with its KV cache.
        """
        ...

    @property
    def adapters(self) -> tuple[tuple[str, float], ...]:
        """The path and the default scale of each adapter."""
        ...

    def adapter_weights(self, wanted: Mapping[int, float] | None = None) -> AdapterWeights:
        """The scales of all adapters, given as numbers and scales; None: the defaults.

        () if no adapter is used. Raises: InputError for a number that no adapter has.
        """
        ...

    @property
    def fingerprint(self) -> str:
        """A string that is equal for two engines only if their weights and adapters are equal."""
        ...

    @property
    def rounding(self) -> str:
        """A string that is equal for two engines of one fingerprint if prompts have the same bits
        in both.
        """
        ...

    def new_cache(
        self, kv_type: str | None = None, adapters: AdapterWeights | None = None,
        domain: Domain = COMMON,
    ) -> KVCache:  # fmt: skip
        """An empty KV cache with the engine's element type or another (F16, F32).

        ``adapters``: the scales from ``adapter_weights`` with which its tokens are computed; None:
        the defaults. ``domain``: the cache shares pages only with caches of the same domain.
        """
        ...

    def renew_pool(self) -> None:
        """Replace the pool by an empty one; after a fork, existing caches belong to the parent
        process.
        """
        ...

    def step(
        self, batch: Sequence[Rows], *, exact: bool = False, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Compute rows of several sequences in one pass over the weights.

        All caches must be different and have the same element type. The step appends each
        sequence's tokens to its cache. ``exact``: each row gets the same bits as in a step of its
        own; ternary weights always do.
        Shapes: returns (n, vocab) for the n rows whose logits are needed, in the order of
        ``batch``, in the first rows of ``out`` or in a new array. Logits that no ``Rows.best``
        asks for may be -inf.
        Raises: InputError, ContextLengthError; TrinityError if no page is left for a sequence
        (``KVCache.reserve`` checks this before) or if the model's file is damaged.
        """
        ...

    def draft(
        self, cache: KVCache, tokens: Sequence[int], most: int, wants: Callable[[float], bool]
    ) -> list[int]:
        """At most ``most`` tokens that may follow ``tokens``, predicted by the drafting layer.

        The newest step must have been that of ``cache``, which holds all of the tokens but the
        last. ``wants`` decides for each proposed token, by its probability, whether it is wanted;
        the first that is not ends the proposal. The result is [] without such a layer, without
        room, or if the newest step belonged to other sequences.
        """
        ...

    def close(self) -> None:
        """End the threads and free all memory; later only the engine's settings can be read."""
        ...
