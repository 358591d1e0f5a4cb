"""How images are cut into squares for a tower.

This runs in the process that decodes an image, so that only the squares reach the server.
Source: transformers' CLIPImageProcessor, Gemma3ImageProcessor, Gemma4ImageProcessor,
GotOcr2ImageProcessor, Idefics3ImageProcessor, LlavaNextImageProcessor, PixtralImageProcessor and
Qwen2VLImageProcessor (their Pillow backends), Gemma4UnifiedImageProcessor and Lfm2VlImageProcessor,
which resize with torchvision, and OpenBMB's MiniCPMVImageProcessor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from PIL.Image import Image, Resampling, new

from trinity.errors import InputError
from trinity.images import resampling
from trinity.images.settings import NARROWEST, ImageSettings

_LONGEST = 4096  # of the first resizing to tiles, whatever the settings say
_LONGEST_ASPECT = 200
# If only the middle of a resized image is used, and it would have more pixels than this, only the
# middle is resized. This may change some values.
_MOST_RESIZED = 1 << 24


class Cut(NamedTuple):
    """Parts of an image: ``rows`` x ``columns`` tiles, and the whole as the last or first one."""

    images: list[Image]
    rows: int = 0  # 0: there are no tiles
    columns: int = 0


def square(image: Image, settings: ImageSettings) -> Cut:
    """Return one square."""
    size = settings.tile, settings.tile
    return Cut([image.resize(size, Resampling(settings.resample))])


def scanned(image: Image, settings: ImageSettings) -> Cut:
    """Return the whole image as a square, and then, if it is long, its parts as squares."""
    whole = square(image, settings).images
    columns, rows = crops(*image.size, settings)
    if not rows:
        return Cut(whole)
    wide, high = math.ceil(image.width / columns), math.ceil(image.height / rows)
    parts = [
        image.crop((x, y, min(x + wide, image.width), min(y + high, image.height)))
        for y in range(0, image.height, high)
        for x in range(0, image.width, wide)
    ]
    return Cut([*whole, *(square(part, settings).images[0] for part in parts)], rows, columns)


def crops(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    """Return into how many columns and rows of crops to cut; one of them is 1. (0, 0): no crops."""
    long, short, most = max(width, height), min(width, height), settings.most_crops
    if not most or long / short < settings.least_ratio:
        return 0, 0
    count = min(math.floor(long / short + 0.5), long // settings.least_crop)
    count = min(max(count, 2), most)
    if min(math.ceil(long / count), short) < settings.least_crop:
        return 0, 0
    return (count, 1) if width >= height else (1, count)


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
    whole = image.resize((tile, tile), resample)
    return Cut([*_tiles_of(image, tile), whole], rows, columns)


def grid(image: Image, settings: ImageSettings) -> Cut:
    """As ``tiles``, with the grid of tiles whose shape is nearest to the image's."""
    tile, resample = settings.tile, Resampling(settings.resample)
    columns, rows = nearest_grid(*image.size, settings)
    if columns == rows == 1:
        return square(image, settings)
    parts = _tiles_of(image.resize((columns * tile, rows * tile), resample), tile)
    return Cut([*parts, *square(image, settings).images], rows, columns)


def nearest_grid(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    """Return the columns and rows of the grid whose shape is nearest to the image's.

    Of grids that are equally near, it is the largest with less than twice the image's pixels.
    """
    sides, most = range(1, settings.most_tiles + 1), settings.most_tiles
    grids = [(x, y) for x in sides for y in sides if settings.least_tiles <= x * y <= most]
    best, difference = (1, 1), math.inf
    for x, y in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        found = abs(width / height - x / y)
        larger = width * height > 0.5 * settings.tile * settings.tile * x * y
        if found < difference or (found == difference and larger):
            best, difference = (x, y), found
    return best


def anyres(image: Image, settings: ImageSettings) -> Cut:
    """Return tiles of the image in its best size, with black around it, and then the whole image.

    If the settings have no sizes, return one square: the middle of the image if they have a
    shortest edge, otherwise the whole image.
    """
    tile, resample = settings.tile, Resampling(settings.resample)
    if not settings.pinpoints:
        return square(image, settings) if not settings.shortest_edge else _middle(image, settings)
    wide, high = best_size(*image.size, settings.pinpoints)
    across, down = wide / image.width, high / image.height
    if across < down:
        size = wide, min(math.ceil(image.height * across), high)
    else:
        size = min(math.ceil(image.width * down), wide), high
    canvas = new("RGB", (wide, high))
    canvas.paste(image.resize(size, resample), ((wide - size[0]) // 2, (high - size[1]) // 2))
    whole = image.resize((tile, tile), resample)
    return Cut([*_tiles_of(canvas, tile), whole], high // tile, wide // tile)


def best_size(width: int, height: int, pinpoints: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return the size that keeps most pixels of an image; of several, the one with least border."""
    best, most, least = pinpoints[0], 0, math.inf
    for high, wide in pinpoints:
        scale = min(wide / width, high / height)
        pixels = min(int(width * scale) * int(height * scale), width * height)
        if pixels > most or (pixels == most and wide * high - pixels < least):
            best, most, least = (high, wide), pixels, wide * high - pixels
    return best[1], best[0]


def _middle(image: Image, settings: ImageSettings) -> Cut:
    """Return the square in the middle of an image whose shorter side becomes ``shortest_edge``."""
    edge, tile, resample = settings.shortest_edge, settings.tile, Resampling(settings.resample)
    short, long = sorted(image.size)
    longer = int(edge * long / short)
    size = (edge, longer) if image.width <= image.height else (longer, edge)
    left, top = ((side - tile) // 2 for side in size)
    if size[0] * size[1] <= _MOST_RESIZED:
        return Cut([image.resize(size, resample).crop((left, top, left + tile, top + tile))])
    across, down = image.width / size[0], image.height / size[1]
    box = left * across, top * down, (left + tile) * across, (top + tile) * down
    return Cut([image.resize((tile, tile), resample, box)])


def _tiles_of(image: Image, tile: int) -> list[Image]:
    """The tiles of an image row by row."""
    return [
        image.crop((x, y, x + tile, y + tile))
        for y in range(0, image.height, tile)
        for x in range(0, image.width, tile)
    ]


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
    return _near(width, height, settings, 0)


def _near(width: int, height: int, settings: ImageSettings, shortest: int) -> tuple[int, int]:
    """As ``resized``, of any shape; ``shortest``: the shortest side before the limits."""
    unit, sides = settings.unit, (width, height)
    found = [max(round(side / unit) * unit, shortest) for side in sides]
    if found[0] * found[1] > settings.most_pixels:
        factor = math.sqrt(width * height / settings.most_pixels)
        found = [max(unit, math.floor(side / factor / unit) * unit) for side in sides]
    elif found[0] * found[1] < settings.least_pixels:
        factor = math.sqrt(settings.least_pixels / (width * height))
        found = [math.ceil(side * factor / unit) * unit for side in sides]
    return found[0], found[1]


def fitted(image: Image, settings: ImageSettings) -> Cut:
    """Return one rectangle of about the image's shape; of a large image, tiles and the rectangle.

    The grid of tiles is the ``nearest_grid``. The rectangle of an image that is about as narrow as
    a block of patches may have twice ``most_pixels``; transformers has no limit there.
    """
    unit, sides = settings.unit, image.size
    width, height = (max(round(side / unit) * unit, settings.patch) for side in sides)
    large = width * height > settings.most_pixels * settings.most_excess
    columns, rows = nearest_grid(*sides, settings) if large and settings.splits else (1, 1)
    longest = max(2 * settings.most_pixels // unit**2, 1) * unit  # of very narrow images
    width, height = (min(side, longest) for side in _near(*sides, settings, unit))
    whole = _resize(image, (width, height), settings)
    if columns == rows == 1:
        return Cut([whole])
    tile = settings.tile
    parts = _tiles_of(_resize(image, (columns * tile, rows * tile), settings), tile)
    return Cut([*parts, whole] if settings.adds_whole else parts, rows, columns)


def sliced(image: Image, settings: ImageSettings) -> Cut:
    """Return the whole image, and then, if it is large, its slices row by row.

    The whole image and each slice have about the pixels of a tile, in about their shape.
    """
    resample = Resampling(settings.resample)
    columns, rows = slices(*image.size, settings)
    size = sliced_size(*image.size, settings, enlarged=not rows)
    whole = image.resize(size, resample)
    if not rows:
        return Cut([whole])
    sides = zip(image.size, (columns, rows), strict=True)
    across, down = (max(round(side / count), 1) for side, count in sides)
    wide, high = sliced_size(across, down, settings, enlarged=True)
    large = image.resize((columns * wide, rows * high), resample)
    parts = [
        large.crop((x, y, x + wide, y + high))
        for y in range(0, large.height, high)
        for x in range(0, large.width, wide)
    ]
    return Cut([whole, *parts], rows, columns)


def slices(width: int, height: int, settings: ImageSettings) -> tuple[int, int]:
    """Return into how many columns and rows of slices to cut; (0, 0): an image is not cut."""
    count = min(math.ceil(width * height / settings.tile**2), settings.most_tiles)
    if count <= 1:
        return 0, 0
    best, difference = (1, 1), math.inf
    for number in (count - 1, count, count + 1):
        if number == 1 or number > settings.most_tiles:
            continue
        for columns in range(1, number + 1):
            rows = number // columns
            found = abs(math.log(width / height) - math.log(columns / rows))
            if number % columns == 0 and found < difference:
                best, difference = (columns, rows), found
    return best


def sliced_size(
    width: int, height: int, settings: ImageSettings, *, enlarged: bool
) -> tuple[int, int]:
    """Return the size of an image or a slice: about the pixels of a tile, in whole units.

    A small image remains small unless it is ``enlarged``. A very narrow one is made shorter.
    """
    tile, unit = settings.tile, settings.unit
    if width * height > tile**2 or enlarged:
        ratio = width / height
        height = int(tile / math.sqrt(ratio))
        width = int(height * ratio)
    longest = NARROWEST * (tile // unit) ** 2 * unit
    wide, high = (max(round(side / unit) * unit, unit) for side in (width, height))
    return min(wide, longest), min(high, longest)


def filled(image: Image, settings: ImageSettings) -> Cut:
    """Return one rectangle of about the image's shape, with about ``most_pixels``."""
    return Cut([_resize(image, filled_size(*image.size, settings), settings)])


def _resize(image: Image, size: tuple[int, int], settings: ImageSettings) -> Image:
    resample = Resampling(settings.resample)
    if settings.torchvision:
        return resampling.resize(image, size, resample)
    return image.resize(size, resample)


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
    "square": square, "scanned": scanned, "tiles": tiles, "grid": grid, "rectangle": rectangle,
    "filled": filled, "shrunk": shrunk, "anyres": anyres, "fitted": fitted,
    "sliced": sliced,
}  # fmt: skip
