"""Rows of images in a prompt: vectors that replace the embeddings of tokens.

In the prompt's ids, each such row has an id of its own that no token has. It is derived from the
image's content, so everything that compares ids, such as the search for known prefixes, tells
images apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FIRST_ID = 1 << 30  # above the ids of tokens; all ids fit int32
ID_BYTES = 4


class ImageRows(NamedTuple):
    """The rows of an image, or of a part of it, from position ``first`` on."""

    first: int
    # (n, hidden_size), or (n, (1 + layers) * hidden_size): what replaces embeddings, and what is
    # added to the residual stream after each of the first layers.
    rows: NDArray[np.float32]
    # The rows attend to each other, so that a step must have all of them.
    both_ways: bool = False
    # Columns of the image's grid of rows, if positions have height and width; else 0.
    columns: int = 0

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + len(self.rows)

    @property
    def span(self) -> int:
        """The difference of the positions after and before the rows."""
        return max(len(self.rows) // self.columns, self.columns) if self.columns else len(self.rows)


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
    for low, high, rows in _shared(images, start, len(x)):
        x[low:high] = rows[:, : x.shape[1]]


def add_images(images: Sequence[ImageRows], start: int, x: NDArray[np.float32], layer: int) -> None:
    """Add what rows of images have for the residual stream ``x`` after ``layer``."""
    width = x.shape[1]
    for low, high, rows in _shared(images, start, len(x)):
        with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
            x[low:high] += rows[:, (layer + 1) * width : (layer + 2) * width]


def _shared(
    images: Sequence[ImageRows], start: int, count: int
) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """Yield the rows of each image among ``count`` positions from ``start`` on, and where they are
    among these.
    """
    for image in images:
        low, high = max(image.first, start), min(image.end, start + count)
        if low < high:
            yield low - start, high - start, image.rows[low - image.first : high - image.first]


def whole_images(images: Sequence[ImageRows], start: int, count: int, most: int) -> int:
    """Return how many positions from ``start`` on a step takes: about ``count``, at most ``most``.

    It does not end within an image whose rows attend to each other.
    """
    for image in images:
        if image.both_ways and image.first < start + count < image.end:
            return image.end - start if image.end - start <= most else max(image.first - start, 0)
    return count
