"""Reads images with Pillow.

A file is decoded and cut in a confined process, with limits of time and memory; its size is checked
before anything is decoded. Only the parts for the tower come from there: copying all pixels of a
large image would hold the interpreter's lock for longer than other requests may wait. An image is
rotated as its EXIF data says, and transparent parts become white.
Of an animation, the first frame counts.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trinity.errors import (
    ConfinedError,
    ConfinedUnavailableError,
    InputError,
    UnsupportedError,
)
from trinity.images.family import Squares
from trinity.images.settings import Cutting, ImageSettings
from trinity.processes.confined import Confined

if TYPE_CHECKING:
    from PIL.Image import Image

ImageLike: TypeAlias = "str | os.PathLike[str] | bytes | NDArray[np.uint8] | Image"
MOST_BYTES = 32 << 20
MOST_PIXELS = 64_000_000  # 192 MB of RGB
MOST_FRAMES = 1000
_KNOWN = "PNG, JPEG, WebP, GIF and BMP"
_AGAIN = " or incomplete and cannot be decoded; save or send it again"
_SMALL = Cutting("square", ImageSettings(tile=1, longest_edge=1, splits=False, resample=0), "")
_DECODER = Confined(
    "trinity.images.decoding",
    memory_bytes=3 * 4 * MOST_PIXELS,  # Pillow has four bytes for a pixel
    seconds=8.0,
    reply_bytes=3 * MOST_PIXELS + 1000,
    processes=2,
    raw=True,
)


class ReadImage(NamedTuple):
    """An image that is cut for a tower."""

    digest: bytes  # of the pixels and the tower
    squares: Squares


def read_image(image: ImageLike, where: str, cutting: Cutting) -> ReadImage:
    """Return the parts of an image: of a file, of its bytes, of an array, or Pillow's.

    An array has the shape (height, width), or (height, width, 3 or 4), and values of uint8.
    ``where`` names the image in errors.
    Raises: InputError for anything that is not an image, is damaged or too large, or has a shape
    that the model does not read; UnsupportedError without Pillow.
    """
    _check_pillow()
    import PIL.Image

    if isinstance(image, np.ndarray):
        image = PIL.Image.fromarray(_checked_array(image, where))
    if isinstance(image, PIL.Image.Image):
        return _cut(_in_rgb(image, where), cutting)
    content = image if isinstance(image, bytes) else _content(image, where)
    return _decoded(content, where, cutting)[0]


def data_url(path: str | os.PathLike[str]) -> str:
    """Return an image file as a data URL. Raises: as ``read_image``."""
    _check_pillow()
    content = _content(path, "the image")
    _, kind = _decoded(content, os.fspath(path), _SMALL)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"


def _check_pillow() -> None:
    if find_spec("PIL") is None:
        raise UnsupportedError(
            "images need the library Pillow, which is not installed: "
            'pip install "trinity-llm[images]"'
        )


def _content(path: str | os.PathLike[str], where: str) -> bytes:
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"{where} is {type(path).__name__}; it must be the path of a file, bytes, a NumPy "
            "array or a PIL image"
        )
    try:
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{where}: {os.fspath(path)!r:.200} cannot be read ({reason}); give an image"
        ) from error


def _checked_array(image: NDArray[np.generic], where: str) -> NDArray[np.uint8]:
    shape = image.shape
    fits = len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))
    if not fits or image.dtype != np.uint8 or not image.size:
        raise InputError(
            f"{where} is an array {shape} of {image.dtype}; it must be (height, width) or (height, "
            "width, 3 or 4) of uint8"
        )
    return np.ascontiguousarray(image, np.uint8)


def _decoded(content: bytes, where: str, cutting: Cutting) -> tuple[ReadImage, str]:
    """Return the parts of an image, and its format."""
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{where} has more than {MOST_BYTES:,} bytes, the limit for an image: make it smaller"
        )
    how = json.dumps((cutting.cut, asdict(cutting.settings), cutting.tower)).encode()
    request = b"".join((struct.pack("<QQ", MOST_PIXELS, MOST_FRAMES), how, b"\n", content))
    try:
        reply = _DECODER.call(request)
    except ConfinedUnavailableError:
        raise
    except ConfinedError as error:
        raise InputError(
            f"{where} cannot be decoded: the process for it was stopped, {error.reason}; make the "
            "image smaller, or save it again"
        ) from error
    start = reply.index(b"\n") + 1
    found = json.loads(reply[:start])
    if "format" in found:
        parts = list[NDArray[np.uint8]]()
        for width, height in found["sizes"]:
            pixels = np.frombuffer(reply, np.uint8, 3 * width * height, start)
            parts.append(pixels.reshape(height, width, 3))
            start += pixels.size
        width, height = found["whole"]
        rows, columns = found["rows"], found["columns"]
        squares = Squares(parts, rows, columns, (width, height), len(parts) > rows * columns)
        return ReadImage(bytes.fromhex(found["digest"]), squares), found["format"]
    if "refused" in found:
        raise InputError(found["refused"])
    if "frames" in found:
        raise InputError(
            f"{where} has {found['frames']} frames; at most {MOST_FRAMES} are read: make it shorter"
        )
    if "size" in found:
        _check_size(found["size"], where)
    if "damaged" in found:
        raise InputError(f"{where} is damaged{_AGAIN}")
    raise InputError(
        f"{where} is not an image{_looks_like(content)}; {_KNOWN} are read: give the file of an "
        "image"
    )


def _check_size(size: Sequence[int] | None, where: str) -> None:
    """Raise InputError for too many pixels. None: so many that Pillow refuses the image."""
    if size is None:
        raise InputError(
            f"{where} has too many pixels; an image has {MOST_PIXELS:,} at most: make it smaller"
        )
    width, height = size
    if not 0 < width * height <= MOST_PIXELS:
        raise InputError(
            f"{where}: {width} x {height} pixels; an image has 1 to {MOST_PIXELS:,} of them: "
            "make it smaller"
        )


def _looks_like(content: bytes) -> str:
    """Describe a file that is not an image, for an error."""
    head = content[:1024].lstrip().lower()
    if head.startswith((b"<svg", b"<?xml", b"<!doctype svg")):
        return " of pixels, but seems to be SVG"
    if not content:
        return ", but empty"
    if any(content.startswith(sign) for sign in (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM")):
        return ", or it is damaged"
    return ""


def _in_rgb(image: Image, where: str) -> Image:
    """Rotate an image of Pillow by EXIF and convert it to RGB."""
    import PIL.ImageOps

    from trinity.images.decoding import rgb

    _check_size(image.size, where)
    try:
        return rgb(PIL.ImageOps.exif_transpose(image))
    except Exception as error:
        raise InputError(f"{where} is damaged{_AGAIN}") from error


def _cut(image: Image, cutting: Cutting) -> ReadImage:
    from trinity.images.cutting import CUTS
    from trinity.images.decoding import digest

    parts = CUTS[cutting.cut](image, cutting.settings)
    pixels = [np.asarray(part) for part in parts.images]
    whole = len(pixels) > parts.rows * parts.columns
    squares = Squares(pixels, parts.rows, parts.columns, image.size, whole)
    return ReadImage(bytes.fromhex(digest(image, cutting)), squares)
