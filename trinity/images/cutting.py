"""How images are cut into squares for a tower.

This runs in the process that decodes an image, so that only the squares reach the server.
Source: transformers' Gemma3ImageProcessor, Gemma4ImageProcessor, Idefics3ImageProcessor,
PixtralImageProcessor and Qwen2VLImageProcessor (their Pillow backends).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from PIL.Image import Image, Resampling

from trinity.errors import InputError
from trinity.images.settings import ImageSettings

_LONGEST = 4096  # of the first resizing to tiles, whatever the settings say
_LONGEST_ASPECT = 200


class Cut(NamedTuple):
    """Parts of an image: ``rows`` x ``columns`` tiles, and the whole as the last one."""

    images: list[Image]
    rows: int = 0  # 0: there are no tiles
    columns: int = 0


def square(image: Image, settings: ImageSettings) -> Cut:
    """Return one square."""
    size = settings.tile, settings.tile
    return Cut([image.resize(size, Resampling(settings.resample))])


def tiles(image: Image, settings: ImageSettings) -> Cut:
    """Return the tiles row by row and then the whole image; only the whole if it is one tile."""
    tile, resample = settings.tile, Resampling(settings.resample)
    if not settings.splits:
        return square(image, settings)
    image = image.resize(_within(*image.size, settings.longest_edge), resample)
    width, height = image.size
    if width >= height:
        wide = _up(width, tile)
        size = wide, _up(int(wide / (width / height)), tile)
    else:
        high = _up(height, tile)
        size = _up(int(high * (width / height)), tile), high
    image = image.resize(size, resample)
    columns, rows = size[0] // tile, size[1] // tile
    if columns == rows == 1:
        return Cut([image])
    parts = [
        image.crop((x * tile, y * tile, (x + 1) * tile, (y + 1) * tile))
        for y in range(rows)
        for x in range(columns)
    ]
    return Cut([*parts, image.resize((tile, tile), resample)], rows, columns)


def rectangle(image: Image, settings: ImageSettings) -> Cut:
    """Return one rectangle of about the image's shape. Raises: InputError, as ``resized``."""
    size = resized(*image.size, settings)
    return Cut([image.resize(size, Resampling(settings.resample))])


def resized(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    """Return the size that an image gets: whole units, within the limits, about its shape.

    Raises: InputError for an image that is more than 200 times as long as wide.
    """
    if max(width, height) > _LONGEST_ASPECT * min(width, height):
        raise InputError(
            f"an image has {width} x {height} pixels; the model reads images that are at most "
            f"{_LONGEST_ASPECT} times as long as wide: cut it into parts"
        )
    unit, sides = settings.unit, (width, height)
    found = [round(side / unit) * unit for side in sides]
    if found[0] * found[1] > settings.most_pixels:
        factor = math.sqrt(width * height / settings.most_pixels)
        found = [max(unit, math.floor(side / factor / unit) * unit) for side in sides]
    elif found[0] * found[1] < settings.least_pixels:
        factor = math.sqrt(settings.least_pixels / (width * height))
        found = [math.ceil(side * factor / unit) * unit for side in sides]
    return found[0], found[1]


def filled(image: Image, settings: ImageSettings) -> Cut:
    """Return one rectangle of about the image's shape, with about ``most_pixels``."""
    size = filled_size(*image.size, settings)
    return Cut([image.resize(size, Resampling(settings.resample))])


def filled_size(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    """Return the largest size of whole units within ``most_pixels``, about in the shape given."""
    unit, most = settings.unit, settings.most_pixels
    factor = math.sqrt(most / (width * height))
    found = [math.floor(factor * side / unit) * unit for side in (width, height)]
    longest = max(most // unit**2, 1) * unit
    if not found[1]:
        return min(max(width // height, 1) * unit, longest), unit
    if not found[0]:
        return unit, min(max(height // width, 1) * unit, longest)
    return found[0], found[1]


def shrunk(image: Image, settings: ImageSettings) -> Cut:
    """Return one rectangle of the image's shape, smaller if it is too long."""
    size = shrunk_size(*image.size, settings)
    return Cut([image.resize(size, Resampling(settings.resample))])


def shrunk_size(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    """Return the size of an image within ``longest_edge``; sides grow to whole units.

    A side that would become 0 gets one unit; transformers refuses such images.
    """
    unit, ratio = settings.unit, max(width, height) / settings.longest_edge
    sides = [math.floor(side / ratio) if ratio > 1 else side for side in (width, height)]
    return max(_up(sides[0], unit), unit), max(_up(sides[1], unit), unit)


def _within(width: int, height: int, longest: int) -> tuple[int, int]:
    """The size of an image whose longer side becomes ``longest``, and at most ``_LONGEST``."""
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    width, height = max(width, 1), max(height, 1)
    ratio = width / height
    if width >= height and width > _LONGEST:
        width, height = _LONGEST, int(_LONGEST / ratio)
    elif height > width and height > _LONGEST:
        width, height = int(_LONGEST * ratio), _LONGEST
    return max(width, 1), max(height, 1)


def _up(length: int, tile: int) -> int:
    return math.ceil(length / tile) * tile


CUTS: dict[str, Callable[[Image, ImageSettings], Cut]] = {
    "square": square, "tiles": tiles, "rectangle": rectangle, "filled": filled,
    "shrunk": shrunk,
}  # fmt: skip
