"""Decodes images with Pillow: what runs in the confined process of ``read_image``.

Nothing can be opened there, so what Pillow imports when it needs it is imported here.
"""

from __future__ import annotations

import copy  # noqa: F401 - by animations
import io
import json
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import PIL.BmpImagePlugin
import PIL.GifImagePlugin
import PIL.Image
import PIL.ImageOps
import PIL.JpegImagePlugin
import PIL.MpoImagePlugin  # by JPEG files with several pictures
import PIL.PngImagePlugin
import PIL.TiffImagePlugin  # by EXIF data
import PIL.WebPImagePlugin
from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
LIMITS = struct.Struct("<QQ")  # before a request's content: the most pixels, the most frames
_BAND = 1 << 20  # pixels that are converted at once

warnings.simplefilter("ignore")
PIL.Image.preinit()


def answer(request: bytes) -> bytearray:
    """Decode an image file: a line of JSON, and the pixels as RGB.

    The line has ``size`` and ``format``, or one key that says what is wrong: ``unknown`` (not an
    image), ``size`` (too many pixels; null: more than Pillow opens), ``frames`` (too many) or
    ``damaged``.
    """
    pixels, frames = LIMITS.unpack_from(request)
    found, image = _opened(request[LIMITS.size :], pixels, frames)
    reply = bytearray()
    if image is not None:
        try:
            PIL.ImageOps.exif_transpose(image, in_place=True)
            found["size"] = image.size
            reply += json.dumps(found).encode() + b"\n"
            for part in rgb(image):
                reply += part
        except MemoryError:
            raise
        except Exception:
            found = {"damaged": True}
        else:
            return reply
    return bytearray(json.dumps(found).encode() + b"\n")


def _opened(content: bytes, pixels: int, frames: int) -> tuple[dict[str, Any], Image | None]:
    try:
        # Only the header is read.
        image = PIL.Image.open(io.BytesIO(content), formats=FORMATS)
        count = getattr(image, "n_frames", 1)
    except MemoryError:
        raise
    except PIL.Image.DecompressionBombError:
        return {"size": None}, None
    except Exception:  # Pillow raises errors of many kinds for damaged files
        return {"unknown": True}, None
    if count > frames:
        return {"frames": count}, None
    if not 0 < image.width * image.height <= pixels:
        return {"size": image.size}, None
    return {"format": image.format}, image


def rgb(image: Image) -> Iterator[bytes]:
    """Yield an image's pixels in RGB, transparent parts on white.

    It is converted in bands, so that no second image of its size is needed.
    """
    image.load()
    deep = image.mode.startswith("I")  # 16 bits
    transparent = not deep and ("A" in image.getbands() or "transparency" in image.info)
    rows = max(1, _BAND // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        if deep:
            band = band.convert("I").point(lambda value: value / 256).convert("L")
        if transparent:
            seen = band.convert("RGBA")
            band = PIL.Image.new("RGB", seen.size, (255, 255, 255))
            band.paste(seen, mask=seen.getchannel("A"))
        yield band.convert("RGB").tobytes()
