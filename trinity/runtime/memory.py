"""Memory that the system may refuse, as an error that says how much, what for, what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trinity.errors import TrinityError

SMALLER_CONTEXT = "use a smaller context_length (--ctx), or give the process more memory"


def zeros(
    shape: int | tuple[int, ...], dtype: DTypeLike, what: str, advice: str = SMALLER_CONTEXT
) -> NDArray[Any]:
    """As ``numpy.zeros``, for ``what``. Raises: TrinityError where the system gives no memory."""
    count = shape if isinstance(shape, int) else math.prod(shape)
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, OverflowError, ValueError) as error:  # ValueError: beyond all addresses
        size = _in_words(count * np.dtype(dtype).itemsize)
        raise TrinityError(
            f"{what} needs {size} of memory, which the system does not give; {advice}"
        ) from error


@contextmanager
def enough_memory(what: str, advice: str = SMALLER_CONTEXT) -> Iterator[None]:
    """Turn a MemoryError within into a TrinityError."""
    try:
        yield
    except MemoryError as error:
        raise too_little_memory(error, what, advice) from error


def too_little_memory(error: MemoryError, what: str, advice: str = SMALLER_CONTEXT) -> TrinityError:
    """A MemoryError as an error that says what to do."""
    # NumPy's says how much it was that could not be had.
    found = f" ({error})" if str(error) else ""
    return TrinityError(f"not enough memory {what}{found}; {advice}")


def _in_words(nbytes: int) -> str:
    size, units = float(nbytes), ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.3g} {units[0]}" if units[0] != "bytes" else f"{nbytes} bytes"
