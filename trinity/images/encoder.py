"""Turns images into rows for a text model, and keeps those of recent images."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.images.family import ImageFamily, Squares
from trinity.images.reading import ImageLike, read_image
from trinity.images.settings import ImageSettings
from trinity.images.tower import Tower
from trinity.images.tower_config import TowerConfig
from trinity.images.tower_weights import TowerTensors, TowerWeights
from trinity.runtime.image_rows import ImageRows, PromptIds, row_ids
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.records.recorder import Recorder
from trinity_kernels.team import Team, TeamError

if TYPE_CHECKING:
    from PIL.Image import Image

KEPT_BYTES = 128 << 20  # of the rows of recent images
_SAMPLE = 4096  # bytes of each tensor that identify the tower

# The tokens of a part of a prompt; the second argument tells the first part.
Tokenize = Callable[[str, bool], list[int]]


def _named(image: ImageLike, number: int) -> str:
    """How errors call an image."""
    if isinstance(image, str | os.PathLike):
        return f"image {number} ({os.fspath(image)!r:.100})"
    return f"image {number}"


class EncodedImage(NamedTuple):
    """An image as rows for the text model."""

    squares: Squares
    rows: NDArray[np.float32]  # (number of squares * rows of a square, hidden_size)
    ids: list[int]  # one for each row


class ImageEncoder:
    """The vision half of a model. Any thread may call it; calls take turns."""

    def __init__(
        self, family: ImageFamily, config: TowerConfig, settings: ImageSettings,
        tensors: TowerTensors, *, isa: str, threads: int,
        release: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._release = release
        self.family, self.config, self.settings = family, config, settings
        self._tensors, self._isa, self._threads = tensors, isa, threads
        self._tower: Tower | None = None
        self._team: Team | None = None
        self._identity = b""
        self._lock = Lock()
        self._kept: OrderedDict[bytes, EncodedImage] = OrderedDict()
        self._closed = False

    @property
    def mark(self) -> str:
        """What the model's chat templates write for an image."""
        return self.family.mark

    def prompt(self, text: str, images: Sequence[ImageLike], tokenize: Tokenize) -> PromptIds:
        """Return the ids of a prompt in which the family's mark stands for each image, in order.

        Raises: InputError if there are not as many marks as images, or for a bad image.
        """
        mark = self.mark
        parts = text.split(mark)
        if len(parts) != len(images) + 1:
            raise InputError(
                f"the prompt has {len(parts) - 1} times {mark!r}, which stands for an image, but "
                f"there are {len(images)} images"
            )
        encoded = [self.encode(image, _named(image, i)) for i, image in enumerate(images)]
        text, size, both_ways = parts[0], self.config.image_rows, self.family.both_ways
        ids, placed = list[int](), list[ImageRows]()
        for image, after in zip(encoded, parts[1:], strict=True):
            *texts, last = self.family.texts(image.squares)
            for number, before in enumerate(texts):
                ids += tokenize(text + before, not ids)
                of_square = slice(number * size, (number + 1) * size)
                placed.append(ImageRows(len(ids), image.rows[of_square], both_ways))
                ids += image.ids[of_square]
                text = ""
            text = last + after
        return PromptIds(ids + tokenize(text, not ids), tuple(placed))

    def encode(self, image: ImageLike, where: str = "the image") -> EncodedImage:
        """Return an image's rows; those of recent images are not computed again."""
        read = read_image(image, where)
        with self._lock:
            tower, team = self._started()
            digest = self._digest(read)
            known = self._kept.get(digest)
            if known is None:
                known = self._encoded(read, digest, tower, team)
                self._keep(digest, known)
            self._kept.move_to_end(digest)
            return known

    def close(self) -> None:
        """End the threads and free the memory. Closing again does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
            if not closed:
                self._release()
            if self._team is not None:
                self._team.close()
            self._tower = self._team = None
            self._kept.clear()

    def _started(self) -> tuple[Tower, Team]:
        """The tower, which is bound when the first image comes."""
        if self._closed:
            raise InputError("this model is closed")
        if self._tower is None or self._team is None:
            weights = TowerWeights(self.config, self._tensors)
            recorder = Recorder(KernelChoice(self._isa, None), self._threads)
            self._tower = Tower(self.family, self.config, weights, recorder)
            try:
                self._team = Team(self._threads)
            except TeamError as error:
                raise TrinityError(str(error)) from error
            self._identity = self._fingerprint()
        return self._tower, self._team

    def _encoded(self, image: Image, digest: bytes, tower: Tower, team: Team) -> EncodedImage:
        squares = self.family.squares(image, self.settings)
        config = self.config
        mean, std = np.array(config.mean, np.float32), np.array(config.std, np.float32)
        rows = []
        for square in squares.images:
            pixels = np.asarray(square, np.float32) / np.float32(255)
            rows.append(tower.run(team, (pixels - mean) / std))
        joined = np.concatenate(rows)
        return EncodedImage(squares._replace(images=[]), joined, row_ids(digest, len(joined)))

    def _keep(self, digest: bytes, encoded: EncodedImage) -> None:
        self._kept[digest] = encoded
        size = sum(image.rows.nbytes for image in self._kept.values())
        while size > KEPT_BYTES and len(self._kept) > 1:
            size -= self._kept.popitem(last=False)[1].rows.nbytes

    def _digest(self, image: Image) -> bytes:
        size = f"{image.width} x {image.height}".encode()
        return hashlib.sha256(self._identity + size + image.tobytes()).digest()

    def _fingerprint(self) -> bytes:
        """A digest of the tower: its configuration, and some bytes of each tensor."""
        found = hashlib.sha256(repr((self.config, self.settings)).encode())
        for name in sorted(self._tensors.tensor_names()):
            tensor = self._tensors.tensor(name)
            found.update(f"{name} {tensor.type} {tensor.shape}".encode())
            found.update(tensor.data.reshape(-1)[:_SAMPLE].tobytes())
        return found.digest()
