"""Reads images with Pillow. Their size is checked before anything is decoded.

An image is rotated as its EXIF data says, and transparent parts become white. Of an animation, the
first frame counts.
"""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from PIL.Image import Image

ImageLike: TypeAlias = "str | os.PathLike[str] | bytes | NDArray[np.uint8] | Image"
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MOST_BYTES = 32 << 20
MOST_PIXELS = 64_000_000  # 192 MB of RGB
MOST_FRAMES = 1000
_KNOWN = "PNG, JPEG, WebP, GIF and BMP"


def read_image(image: ImageLike, where: str) -> Image:
    """Return an image in RGB: of a file, of its bytes, of an array, or Pillow's.

    An array has the shape (height, width), or (height, width, 3 or 4), and values of uint8.
    ``where`` names the image in errors.
    Raises: InputError for anything that is not an image, is damaged or too large;
    UnsupportedError without Pillow.
    """
    try:
        import PIL.Image
    except ImportError as error:
        raise UnsupportedError(
            'images need Pillow: install trinity with the extra "images", such as '
            "pip install 'trinity[images]'"
        ) from error
    if isinstance(image, PIL.Image.Image):
        opened = image
    elif isinstance(image, np.ndarray):
        opened = PIL.Image.fromarray(_checked_array(image, where))
    else:
        content = image if isinstance(image, bytes) else _content(image, where)
        if len(content) > MOST_BYTES:
            raise InputError(f"{where}: {len(content)} bytes; an image may have {MOST_BYTES}")
        opened = _opened(content, where)
    width, height = opened.size
    if not width or not height or width * height > MOST_PIXELS:
        raise InputError(
            f"{where}: {width} x {height} pixels; an image has 1 to {MOST_PIXELS:,} of them: "
            "make it smaller"
        )
    return _in_rgb(opened, where)


def data_url(path: str | os.PathLike[str]) -> str:
    """Return an image file as a data URL. Raises: as ``read_image``."""
    content = _content(path, "the image")
    read_image(content, os.fspath(path))
    kind = _opened(content, os.fspath(path)).format or "png"
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"


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
        raise InputError(f"{where}: {os.fspath(path)!r:.200} cannot be read: {reason}") from error


def _checked_array(image: NDArray[np.generic], where: str) -> NDArray[np.uint8]:
    shape = image.shape
    fits = len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))
    if not fits or image.dtype != np.uint8 or not image.size:
        raise InputError(
            f"{where} is an array {shape} of {image.dtype}; it must be (height, width) or (height, "
            "width, 3 or 4) of uint8"
        )
    return np.ascontiguousarray(image, np.uint8)


def _opened(content: bytes, where: str) -> Image:
    """Open an image: only its header is read."""
    import PIL.Image

    try:
        image = PIL.Image.open(io.BytesIO(content), formats=FORMATS)
        frames = getattr(image, "n_frames", 1)
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
        raise InputError(
            f"{where} has too many pixels; an image has {MOST_PIXELS:,} at most: make it smaller"
        ) from error
    # Pillow raises errors of many kinds for damaged files.
    except Exception as error:
        what = _looks_like(content)
        raise InputError(
            f"{where} is not an image{what}; {_KNOWN} are read: give the file of an image"
        ) from error
    if frames > MOST_FRAMES:
        raise InputError(f"{where} has {frames} frames; an image may have {MOST_FRAMES}")
    return image


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
    """Decode, rotate by EXIF and convert to RGB."""
    import PIL.Image
    import PIL.ImageOps

    try:
        image = PIL.ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits
            image = PIL.Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
        if "A" in image.getbands() or "transparency" in image.info:
            seen = image.convert("RGBA")
            image = PIL.Image.new("RGB", seen.size, (255, 255, 255))
            image.paste(seen, mask=seen.getchannel("A"))
        return image.convert("RGB")
    except Exception as error:
        raise InputError(
            f"{where} is damaged or incomplete and cannot be decoded; save or send it again"
        ) from error
