"""Images in requests: the ingress reads and cuts them, a replica computes their rows.

The ids of an image's rows follow from its pixels, so the ingress knows them without the tower.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.images.encoder import EncodedImage, ImageEncoder
from trinity.images.family import Squares
from trinity.runtime.image_rows import PromptIds, row_ids


@dataclass(frozen=True, slots=True)
class RowsElsewhere:
    """Stands for rows of an image in the ingress: the pixels from which a replica makes them."""

    digest: bytes
    squares: Squares
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def __getitem__(self, part: slice) -> RowsElsewhere:
        first, end, _ = part.indices(len(self))
        return replace(self, first=self.first + first, end=self.first + end)

    @property
    def nbytes(self) -> int:
        """The size of the pixels."""
        return sum(square.nbytes for square in self.squares.images)

    def made(self, encoder: ImageEncoder) -> NDArray[np.float32]:
        """Return the rows."""
        return encoder.rows_of(self.digest, self.squares)[self.first : self.end]


class ImageCutter(ImageEncoder):
    """The ingress's part of an encoder: everything but the tower."""

    def _computed(self, digest: bytes, squares: Squares) -> EncodedImage:
        grids, _ = self._grids(squares)
        count = sum(height * width for height, width in grids)
        rows: Any = RowsElsewhere(digest, squares, 0, count)
        return EncodedImage(squares._replace(images=[]), grids, rows, row_ids(digest, count))


def with_rows(ids: PromptIds, encoder: ImageEncoder) -> PromptIds:
    """Return a prompt of the ingress with the rows of its images. Raises: TrinityError."""
    images = []
    for image in ids.images:
        elsewhere: Any = image.rows
        images.append(image._replace(rows=elsewhere.made(encoder)))
    return PromptIds(ids, tuple(images))
