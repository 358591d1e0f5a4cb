"""How images are resized and normalized before a vision tower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

NARROWEST = 4  # the patches of a narrow slice, at most, as a multiple of those of a square one


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """The settings of a model's image processor."""

    tile: int
    """The side of a square for the tower; 0: an image has one part of any size."""
    longest_edge: int
    """The longer side of an image before it is cut into tiles; the cut "shrunk" makes only larger
    images smaller."""
    splits: bool
    """Whether an image is cut into tiles."""
    resample: int
    """Pillow's number of the filter: 1 Lanczos, 2 bilinear, 3 bicubic."""
    unit: int = 0
    """Without tiles: the sides of a resized image are multiples of it."""
    least_pixels: int = 0
    most_pixels: int = 0
    """Without tiles: the limits of a resized image; the cut "filled" enlarges images to the
    second."""
    least_tiles: int = 1
    most_tiles: int = 0
    """The least and the largest number of tiles. The cut "sliced" has only the largest."""
    shortest_edge: int = 0
    """The shorter side of an image before its middle is cut out; 0: it is stretched to a square."""
    pinpoints: Sequence[Sequence[int]] = ()
    """Heights and widths: an image is enlarged to the best of them, and cut into tiles."""

    patch: int = 0
    """For the cut "fitted": the side of a patch."""
    most_excess: float = 1.0
    """For the cut "fitted": larger images are cut into tiles, in multiples of ``most_pixels``."""
    adds_whole: bool = True
    """For the cut "fitted": whether the whole image follows its tiles."""
    most_crops: int = 0
    """For the cut "scanned": into how many parts a long image is cut at most; 0: it is not cut."""
    least_crop: int = 1
    """For the cut "scanned": the smallest side of a part."""
    least_ratio: float = 1.0
    """For the cut "scanned": the ratio of the sides from which an image is cut into parts."""
    numbers: bool = False
    """The text of an image begins with its number in the prompt."""
    torchvision: bool = False
    """For the cuts "fitted" and "filled": images are resized as torchvision does, not as Pillow."""


class Cutting(NamedTuple):
    """How an image is cut into parts, and the tower for which it is."""

    cut: str
    """A name in ``cutting.CUTS``."""
    settings: ImageSettings
    tower: str
    """Identifies the tower: digests of images for different towers differ."""
