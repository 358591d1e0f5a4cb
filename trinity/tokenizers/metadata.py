"""Typed reading of tokenizer keys from a model file's metadata.

Keys are named without their prefix "tokenizer.". Every function raises TokenizerError for a value
of another type, and returns the default for a missing key.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TokenizerError
from trinity.formats.gguf_metadata import GGUFMetadata

# The largest arrays, of merges, have some 10 million; a wide character makes its text four times
# as large in memory.
MAX_BYTES = 1 << 25
_JOINED = 1 << 10  # strings that are checked together

RECONVERT = "convert the model again with a current converter"


def text(metadata: Mapping[str, object], key: str) -> str | None:
    """Return a string, or None if the key is missing."""
    value = metadata.get(f"tokenizer.{key}")
    if value is None or isinstance(value, str):
        return value
    raise wrong_kind(key, value, "a string")


def flag(metadata: Mapping[str, object], key: str) -> bool | None:
    """Return a bool, or None if the key is missing."""
    value = metadata.get(f"tokenizer.{key}")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise wrong_kind(key, value, "true or false")


def integer(metadata: Mapping[str, object], key: str) -> int | None:
    """Return an integer, or None if the key is missing."""
    value = metadata.get(f"tokenizer.{key}")
    if value is None:
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise wrong_kind(key, value, "an integer")


def strings(metadata: Mapping[str, object], key: str, most: int, longest: int) -> list[str] | None:
    """Return an array of strings that UTF-8 can encode, or None if the key is missing.

    The limits are ``most`` strings, ``longest`` characters per string, and MAX_BYTES for all arrays
    of a file.
    """
    full_key = f"tokenizer.{key}"
    if isinstance(metadata, GGUFMetadata) and full_key in metadata:
        nbytes = metadata.encoded_length(full_key)
        if nbytes > MAX_BYTES:
            raise TokenizerError(
                f"{full_key} has {nbytes} bytes; the limit is {MAX_BYTES}, far more than any "
                f"model has; {RECONVERT}"
            )
    count = _length(metadata, full_key)
    if count > most:
        raise TokenizerError(
            f"tokenizer.{key} has {count} elements; the limit is {most}, far more than any model "
            f"has; {RECONVERT}"
        )
    value = metadata.get(full_key)
    if value is None:
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU" and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple) or not all(
        issubclass(t, str) for t in set(map(type, value))
    ):
        raise wrong_kind(key, value, "an array of strings")
    length = max(map(len, value), default=0)
    if length > longest:
        raise TokenizerError(
            f"tokenizer.{key} has a string of {length} characters; the limit is {longest}, far "
            f"more than any model has; {RECONVERT}"
        )
    try:
        for first in range(0, len(value), _JOINED):
            "".join(value[first : first + _JOINED]).encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"tokenizer.{key} contains a lone surrogate, which UTF-8 cannot encode; {RECONVERT}"
        ) from error
    return list(value)


def _length(metadata: Mapping[str, object], key: str) -> int:
    """Return an array's length, from the file's header if possible; 0 if there is none."""
    if key in metadata and isinstance(metadata, GGUFMetadata):
        return metadata.array_length(key) or 0
    value = metadata.get(key)
    return len(value) if isinstance(value, list | tuple) else getattr(value, "size", 0)


def numbers(
    metadata: Mapping[str, object], key: str, count: int, kinds: str, *, whole: bool = False
) -> NDArray[np.generic] | None:
    """Return the first ``count`` elements, or the ``whole`` array, of ``kinds`` ("iuf").

    Any declared width is accepted: the reader decodes each element by it.
    """
    value = metadata.get(f"tokenizer.{key}")
    if value is None:
        return None
    wanted = "an array of numbers" if "f" in kinds else "an array of integers"
    if not isinstance(value, list | tuple | np.ndarray):
        raise wrong_kind(key, value, wanted)
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # ragged, or integers of any size
        raise wrong_kind(key, value, wanted) from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise wrong_kind(key, value, wanted)
    if array.size < count:
        raise TokenizerError(
            f"tokenizer.{key} has {array.size} elements for {count} tokens; it needs one for each"
            f" token; {RECONVERT}"
        )
    return array if whole else array[:count]


def wrong_kind(key: str, value: object, wanted: str) -> TokenizerError:
    """Return the error for a value of the wrong type."""
    if isinstance(value, np.ndarray):
        shown_value = f"an array of {value.dtype.name}"
    elif isinstance(value, list | tuple):
        kinds = sorted({type(v).__name__ for v in value[:1000]})
        shown_value = f"an array of {' and '.join(kinds) or 'nothing'}"
    else:
        shown_value = f"{type(value).__name__} {str(value)[:40]!r}"
    return TokenizerError(f"tokenizer.{key} is {shown_value}, not {wanted}; {RECONVERT}")
