"""Rows of images in a prompt: vectors that replace the embeddings of tokens.

In the prompt's ids, each such row has an id of its own that no token has. It is derived from the
image's content, so everything that compares ids, such as the search for known prefixes, tells
images apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FIRST_ID = 1 << 30  # above the ids of tokens; all ids fit int32
ID_BYTES = 4


class ImageRows(NamedTuple):
    """The rows (n, hidden_size) from position ``first`` on.

    ``both_ways``: they attend to each other, so that a step must have all of them.
    """

    first: int
    rows: NDArray[np.float32]
    both_ways: bool = False

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + len(self.rows)


class PromptIds(list[int]):
    """The ids of a prompt, and the rows of its images."""

    def __init__(self, ids: Iterable[int], images: tuple[ImageRows, ...]) -> None:
        super().__init__(ids)
        self.images = images

    def __add__(self, more: list[int]) -> PromptIds:  # type: ignore[override]
        """The ids followed by tokens."""
        return PromptIds([*self, *more], self.images)


def row_ids(digest: bytes, count: int) -> list[int]:
    """Return the ids of the ``count`` rows of an image, whose content has this digest."""
    made = np.frombuffer(hashlib.shake_256(digest).digest(ID_BYTES * count), np.uint32)
    ids: list[int] = (made % FIRST_ID + FIRST_ID).tolist()
    return ids


def is_token(number: int) -> bool:
    """Whether an id of a prompt is a token, not a row of an image."""
    return number < FIRST_ID


def images_of(ids: Sequence[int]) -> tuple[ImageRows, ...]:
    """The images of a prompt; () for plain token ids."""
    return ids.images if isinstance(ids, PromptIds) else ()


def after(before: Sequence[int], ids: Sequence[int], *, skipped: int = 0) -> list[int]:
    """Return the ids of a prompt, without the first ``skipped``, after other tokens."""
    more = len(before) - skipped
    images = tuple(image._replace(first=image.first + more) for image in images_of(ids))
    joined = [*before, *ids[skipped:]]
    return PromptIds(joined, images) if images else joined


def put_images(images: Sequence[ImageRows], start: int, x: NDArray[np.float32]) -> None:
    """Write the rows of images among the positions from ``start`` on into ``x``, (n, width)."""
    end = start + len(x)
    for image in images:
        low, high = max(image.first, start), min(image.end, end)
        if low < high:
            x[low - start : high - start] = image.rows[low - image.first : high - image.first]


def whole_images(images: Sequence[ImageRows], start: int, count: int, most: int) -> int:
    """How many of the positions from ``start`` on a step takes, about ``count``, at most ``most``.

    It does not end within an image whose rows attend to each other.
    """
    for image in images:
        if image.both_ways and image.first < start + count < image.end:
            return image.end - start if image.end - start <= most else max(image.first - start, 0)
    return count
