"""Decodes and cuts images with Pillow: what runs in the confined process of ``read_image``.

Nothing can be opened there, so what Pillow imports when it needs it is imported here.
"""

from __future__ import annotations

import copy  # noqa: F401 - by animations
import hashlib
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

from trinity.errors import InputError
from trinity.images.cutting import CUTS
from trinity.images.settings import Cutting, ImageSettings

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
LIMITS = struct.Struct("<QQ")  # before a request: the most pixels, the most frames
_BAND = 1 << 20  # pixels that are converted at once

warnings.simplefilter("ignore")
PIL.Image.preinit()


def answer(request: bytes) -> bytearray:
    """Decode and cut an image file: a line of JSON, and the pixels of the parts as RGB.

    The request is LIMITS, a line of JSON with the values of ``Cutting``, and the file. The line of
    the reply has ``format``, ``digest``, ``rows``, ``columns``, the size of the ``whole`` image and
    the ``sizes`` of the parts, or one key that says what is wrong: ``unknown`` (not an image),
    ``size`` (too many pixels; null: more than Pillow opens), ``frames`` (too many), ``refused`` (a
    text) or ``damaged``.
    """
    pixels, frames = LIMITS.unpack_from(request)
    end = request.index(b"\n", LIMITS.size)
    cut, settings, tower = json.loads(request[LIMITS.size : end])
    found, image = _opened(request[end + 1 :], pixels, frames)
    if image is not None:
        cutting = Cutting(cut, ImageSettings(**settings), tower)
        try:
            PIL.ImageOps.exif_transpose(image, in_place=True)
            image = rgb(image)
            parts = CUTS[cutting.cut](image, cutting.settings)
            found["digest"] = digest(image, cutting)
        except MemoryError:
            raise
        except InputError as error:
            found = {"refused": str(error)}
        except Exception:
            found = {"damaged": True}
        else:
            found |= {"rows": parts.rows, "columns": parts.columns, "whole": image.size}
            found["sizes"] = [part.size for part in parts.images]
            reply = bytearray(json.dumps(found).encode() + b"\n")
            for part in parts.images:
                for band in bands(part):
                    reply += band.tobytes()
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


def rgb(image: Image) -> Image:
    """Return an image in RGB, transparent parts on white."""
    image.load()
    deep = image.mode.startswith("I")  # 16 bits
    transparent = not deep and ("A" in image.getbands() or "transparency" in image.info)
    if image.mode == "RGB" and not transparent:
        return image
    whole, top = PIL.Image.new("RGB", image.size), 0
    for band in bands(image):
        if deep:
            band = band.convert("I").point(lambda value: value / 256).convert("L")
        if transparent:
            seen = band.convert("RGBA")
            band = PIL.Image.new("RGB", seen.size, (255, 255, 255))
            band.paste(seen, mask=seen.getchannel("A"))
        whole.paste(band.convert("RGB"), (0, top))
        top += band.height
    return whole


def digest(image: Image, cutting: Cutting) -> str:
    """Return a digest of an RGB image's pixels and size, and of the tower that reads it."""
    found = hashlib.sha256(f"{cutting.tower} {image.width} x {image.height} ".encode())
    for band in bands(image):
        found.update(band.tobytes())
    return found.hexdigest()


def bands(image: Image) -> Iterator[Image]:
    """Yield an image in bands, so that little memory is needed to convert it."""
    rows = max(1, _BAND // image.width)
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))
