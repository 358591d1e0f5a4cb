"""Turns images into rows for a text model, and keeps those of recent images."""

from __future__ import annotations

import hashlib
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.images.family import ImageFamily, Squares, size_of
from trinity.images.patch_projection import PatchProjection
from trinity.images.reading import ImageLike, read_image
from trinity.images.settings import Cutting, ImageSettings
from trinity.images.tower import Tower
from trinity.images.tower_config import TowerConfig
from trinity.images.tower_weights import TowerTensors, TowerWeights
from trinity.runtime.image_rows import ImageRows, PromptIds, row_ids
from trinity.runtime.interface import Engine
from trinity.runtime.kernel_choice import KernelChoice
from trinity.runtime.records.recorder import Recorder
from trinity.runtime.scheduling.sequence import check_context
from trinity_kernels.team import Team, TeamError

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

    squares: Squares  # without their pixels
    grids: list[
        tuple[int, int]
    ]  # of each square: how many rows it has, below and beside each other
    rows: NDArray[np.float32]  # of all squares; see ImageRows
    ids: list[int]  # one for each row


class _ReadImage(NamedTuple):
    """An image that is encoded already, or cut into squares for the tower."""

    digest: bytes  # of the pixels and the tower
    encoded: EncodedImage | None
    squares: Squares | None


class ImageEncoder:
    """The vision half of a model whose other half ``engine`` runs.

    Any thread may call it; calls take turns.
    """

    def __init__(
        self, family: ImageFamily, config: TowerConfig, settings: ImageSettings,
        tensors: TowerTensors, engine: Engine, *, both_ways: bool,
        release: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._release, self._context_length = release, engine.context_length
        self._both_ways = both_ways
        self._row_scale = np.float32(family.row_scale(engine.config))
        self.family, self.config, self.settings = family, config, settings
        self._tensors, self._isa, self._threads = tensors, engine.isa, engine.threads
        self._weights = TowerWeights(family, config, tensors)
        self._tower: Tower | PatchProjection | None = None
        self._team: Team | None = None
        self._lock = Lock()
        self._kept: OrderedDict[bytes, EncodedImage] = OrderedDict()
        self._closed = False

    @property
    def mark(self) -> str:
        """The text that the model's chat templates write for an image."""
        return self.family.mark

    @property
    def joint(self) -> str:
        """The text between an image and other parts in chat templates that read only text."""
        return self.family.joint

    def prompt(
        self, text: str, images: Sequence[ImageLike], tokenize: Tokenize, mark: str | None = None
    ) -> PromptIds:
        """Return the ids of a prompt in which the mark stands for each image, in order.

        ``mark``: the family's by default; with another one, the text lacks what the family's chat
        templates write around theirs.

        Raises: InputError if there are not as many marks as images, or for a bad image;
        ContextLengthError if the rows of all images exceed the context.
        """
        start, end = self.family.around if mark else ("", "")
        mark = mark or self.mark
        parts = text.split(mark)
        if len(parts) != len(images) + 1:
            raise InputError(
                f"the prompt contains {mark!r}, which stands for an image, {len(parts) - 1} times, "
                f"but there are {len(images)} images"
            )
        # Before anything is computed: each image has at least one square.
        side = 0 if self.settings.unit else self.settings.tile
        least = len(images) * self._rows_of_size(side, side)
        check_context(least, self._context_length, least=True)
        read = [self._read(image, _named(image, i)) for i, image in enumerate(images)]
        check_context(sum(map(self._rows_of, read)), self._context_length, least=True)
        encoded = [self._encoded(image) for image in read]
        text, family = parts[0], self.family
        ids, placed = list[int](), list[ImageRows]()
        between = tokenize(family.line_break, False) if family.line_break else []
        for number, (image, after) in enumerate(zip(encoded, parts[1:], strict=True)):
            *texts, last = family.texts(image.squares)
            numbered = family.number.format(number) if self.settings.numbers else ""
            texts[0], last = start + numbered + texts[0], last + end
            first = 0
            for before, (height, width) in zip(texts, image.grids, strict=True):
                ids += tokenize(text + before, not ids)
                columns, past = width if family.axes else 0, first + height * width
                length = width if between else height * width
                for row in range(first, past, length):
                    rows = slice(row, row + length)
                    if row > first:
                        ids += between
                    placed.append(ImageRows(len(ids), image.rows[rows], self._both_ways, columns))
                    ids += image.ids[rows]
                text, first = "", past
            text = last + after
        return PromptIds(ids + tokenize(text, not ids), tuple(placed))

    def encode(self, image: ImageLike, where: str = "the image") -> EncodedImage:
        """Return an image's rows; those of recent images are not computed again."""
        return self._encoded(self._read(image, where))

    def rows_of(self, digest: bytes, squares: Squares) -> NDArray[np.float32]:
        """Return the rows of an image that another process has cut."""
        return self._encoded(_ReadImage(digest, None, squares)).rows

    def close(self) -> None:
        """End the threads and free the memory. Closing again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._team is not None:
                self._team.close()
            self._tower = self._team = None
            self._kept.clear()
            del self._weights, self._tensors  # which refer to the file's mapping
            self._release()

    def _read(self, image: ImageLike, where: str) -> _ReadImage:
        """Read an image, and cut it into squares if its rows are not known."""
        with self._lock:
            self._check_open()
            cutting = Cutting(self.family.cut, self.settings, self._identity)
        digest, squares = read_image(image, where, cutting)
        with self._lock:
            self._check_open()
            known = self._kept.get(digest)
        return _ReadImage(digest, known, squares if known is None else None)

    def _rows_of(self, image: _ReadImage) -> int:
        if image.squares is None:
            return 0 if image.encoded is None else len(image.encoded.rows)
        order = self.family.order(self.config, image.squares)
        if order is not None:
            return len(order)
        return sum(self._rows_of_size(*size_of(square)) for square in image.squares.images)

    def _rows_of_size(self, width: int, height: int) -> int:
        """How many rows a square of this size has; 1 at least."""
        return max(math.prod(self.config.grid(width, height)), 1)

    def _encoded(self, image: _ReadImage) -> EncodedImage:
        with self._lock:
            found = image.encoded or self._kept.get(image.digest)
            if found is None:
                assert image.squares is not None
                found = self._computed(image.digest, image.squares)
            self._keep(image.digest, found)
            return found

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("this model is closed; load it again")

    def _started(self, count: int) -> tuple[Tower | PatchProjection, Team]:
        """The threads and the tower for ``count`` blocks of patches, bound when first needed."""
        self._check_open()
        if self._team is None:
            try:
                self._team = Team(self._threads)
            except TeamError as error:
                raise TrinityError(str(error)) from error
        if self._tower is None or self._tower.count != count:
            self._tower = None  # before another one needs memory
            recorder = Recorder(KernelChoice(self._isa, None), self._threads)
            if self.family.only_projects:
                self._tower = PatchProjection(
                    self.family, self.config, self._weights, recorder, count
                )
            else:
                self._tower = Tower(self.family, self.config, self._weights, recorder, count)
        return self._tower, self._team

    def _grids(self, squares: Squares) -> tuple[list[tuple[int, int]], NDArray[np.intp] | None]:
        """The grids of an image's squares, and the order of their rows if it is another one."""
        order = self.family.order(self.config, squares)
        if order is not None:
            return [(1, len(order))], order
        return [self.config.grid(*size_of(square)) for square in squares.images], None

    def _computed(self, digest: bytes, squares: Squares) -> EncodedImage:
        config = self.config
        mean, std = np.array(config.mean, np.float32), np.array(config.std, np.float32)
        rows, (grids, order) = [], self._grids(squares)
        for square in squares.images:
            tower, team = self._started(math.prod(config.blocks(*size_of(square))))
            pixels = np.asarray(square, np.float32) / np.float32(255)
            rows.append(tower.run(team, (pixels - mean) / std))
        joined = np.concatenate(rows)
        if order is not None:
            newline = self._weights.vector("v.image_newline", config.projection_size)
            joined = np.concatenate([joined, newline[None]])[order]
        joined = joined * self._row_scale
        ids = row_ids(digest, len(joined))
        return EncodedImage(squares._replace(images=[]), grids, joined, ids)

    def _keep(self, digest: bytes, encoded: EncodedImage) -> None:
        """Keep the rows of an image; forget those that were not used for the longest time."""
        self._kept[digest] = encoded
        self._kept.move_to_end(digest)
        size = sum(image.rows.nbytes for image in self._kept.values())
        while size > KEPT_BYTES and len(self._kept) > 1:
            size -= self._kept.popitem(last=False)[1].rows.nbytes

    @cached_property
    def _identity(self) -> str:
        """A digest of the tower: its configuration, and some bytes of each tensor."""
        found = hashlib.sha256(repr((self.config, self.settings)).encode())
        for name in sorted(self._tensors.tensor_names()):
            tensor = self._tensors.tensor(name)
            found.update(f"{name} {tensor.type} {tensor.shape}".encode())
            found.update(tensor.data.reshape(-1)[:_SAMPLE].tobytes())
        return found.hexdigest()
