"""Log-probabilities of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.sampling.distribution import (
    best,
    best_of_rows,
    log_normalizer,
    log_normalizers,
)

# Logits that are looked at together: with a small vocabulary, calls of NumPy cost more than their
# work, and each of them may lose the interpreter's lock.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a token."""

    token_id: int
    logprob: float
    """The natural logarithm of the model's own probability, before sampling options.

    With ``processed_logprobs``, after them.
    """
    text: str = ""
    """The token's text, with U+FFFD for bytes that are not valid text alone."""
    top: Sequence[TokenLogprob] = ()
    """The most probable tokens, best first; their own ``top`` is empty.

    In a stream it is an ``Alternatives``, otherwise a tuple.
    """

    def plain(self) -> TokenLogprob:
        """The same with a tuple as ``top``."""
        return replace(self, top=tuple(self.top))


class Alternatives(Sequence[TokenLogprob]):
    """The most probable tokens, best first. Their objects are made when they are read.

    While hundreds of objects for each token wait for a reader, the garbage collector stops all
    threads for tens of milliseconds.
    """

    __slots__ = ("_ids", "_logprobs", "_texts")

    def __init__(
        self, ids: NDArray[Any], logprobs: NDArray[np.float64], text: Callable[[int], str]
    ) -> None:
        self._ids, self._logprobs = ids, logprobs
        self._texts = tuple(map(text, ids.tolist()))

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> TokenLogprob: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TokenLogprob, ...]: ...
    def __getitem__(self, index: int | slice) -> TokenLogprob | tuple[TokenLogprob, ...]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[TokenLogprob]:
        return map(TokenLogprob, self._ids.tolist(), self._logprobs.tolist(), self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alternatives | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def token_logprob(
    logits: NDArray[np.float32], token_id: int, top: int = 0,
    text: Callable[[int], str] = lambda token: "",
) -> TokenLogprob:  # fmt: skip
    """The log-probability of ``token_id`` under raw ``logits``, and those of the ``top`` best.

    ``text`` returns a token's text.
    """
    normalizer = log_normalizer(logits)
    best_ids = best(logits, top)
    alternatives = Alternatives(best_ids, logits[best_ids].astype(np.float64) - normalizer, text)
    return TokenLogprob(
        token_id, float(logits[token_id]) - normalizer, text(token_id), alternatives
    )


def token_logprobs(
    logits: NDArray[np.float32], token_ids: Sequence[int], top: int, text: Callable[[int], str]
) -> Iterator[TokenLogprob]:
    """``token_logprob`` for each row of ``logits`` and the token of it, as ``plain`` ones."""
    step = max(1, _AT_ONCE // logits.shape[1])
    for start in range(0, len(logits), step):
        rows, targets = logits[start : start + step], token_ids[start : start + step]
        normalizers = np.array(log_normalizers(rows))
        best_ids = best_of_rows(rows, top)
        own = np.take_along_axis(rows, np.array(targets)[:, None], 1)[:, 0] - normalizers
        others = np.take_along_axis(rows, best_ids, 1) - normalizers[:, None]
        for target, logprob, ids, values in zip(
            targets, own.tolist(), best_ids.tolist(), others.tolist(), strict=True
        ):
            yield TokenLogprob(
                target, logprob, text(target),
                tuple(TokenLogprob(*pair, text(pair[0])) for pair in zip(ids, values, strict=True)),
            )  # fmt: skip
