"""What prompts are made of: token ids that exist, and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError

Messages = Sequence[Mapping[str, object]]


def checked_ids(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Token ids as a list. Raises InputError unless they are integers of the vocabulary."""
    try:
        array = np.asarray(token_ids)
    except (TypeError, ValueError):  # ragged
        array = np.empty(1, object)
    if array.size == 0:
        return []
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"token ids are {type(token_ids).__name__} of {array.dtype}; "
            "they must be a flat sequence of integers"
        )
    check_ids(array, vocab_size)
    return [int(i) for i in array]


def check_ids(ids: NDArray[np.generic], vocab_size: int) -> None:
    """Raise InputError where an id is outside the vocabulary."""
    for bad in (int(ids.min()), int(ids.max())):
        if not 0 <= bad < vocab_size:
            raise InputError(f"token id {bad} does not exist: the model has 0 to {vocab_size - 1}")
