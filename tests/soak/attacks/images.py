"""Images for a model that reads them."""

from __future__ import annotations

import base64
import itertools
import random
import struct
import zlib

from tests.soak.attacks.target import CHAT, Target, attack

JSON = {"type": "json_object"}
numbers = itertools.count()


def png(width: int, height: int, rows: bytes, colour: int = 2, depth: int = 8) -> bytes:
    """A PNG file; ``rows`` are the uncompressed rows with their filter bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"".join((
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows, 1)),
        chunk(b"IEND", b""),
    ))  # fmt: skip


def noise(width: int, height: int) -> bytes:
    """An image of random pixels, another one for each call."""
    chance = random.Random(next(numbers))
    return png(width, height, b"".join(b"\0" + chance.randbytes(3 * width) for _ in range(height)))


def asked(images: list[bytes], **more: object) -> dict[str, object]:
    """A chat about images."""
    urls = [f"data:image/png;base64,{base64.b64encode(one).decode()}" for one in images]
    content: list[object] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content.append({"type": "text", "text": "x"})
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 4, **more}


@attack("vision")
def bombs_of_pixels(target: Target) -> None:
    """Images of 64 million white pixels in 8 KB."""
    side = 7992
    bomb = png(side, side, (b"\0" + b"\xff" * (side // 8)) * side, colour=0, depth=1)
    target.again(lambda: target.ask(CHAT, asked([bomb])), 4)


@attack("vision")
def images_of_noise(target: Target) -> None:
    """An image of 3 MB that nothing has seen before."""
    target.again(lambda: target.ask(CHAT, asked([noise(1000, 1000)])), 4)


@attack("vision")
def many_small_images(target: Target) -> None:
    """100 different images of 8 x 8 pixels in a request."""
    target.again(lambda: target.ask(CHAT, asked([noise(8, 8) for _ in range(100)])), 4)


@attack("vision")
def the_same_image_again(target: Target) -> None:
    """One image 5,000 times in a request."""
    image = noise(4, 4)
    target.again(lambda: target.ask(CHAT, asked([image] * 5000)), 4)


@attack("vision")
def damaged_images(target: Target) -> None:
    """Images with a byte changed, by eight clients."""

    def ask() -> None:
        image = bytearray(noise(64, 64))
        image[random.randrange(8, len(image))] ^= 0xFF
        target.ask(CHAT, asked([bytes(image)]))

    target.again(ask, 8)


@attack("vision")
def images_with_grammars(target: Target) -> None:
    """Questions about a new image each, whose answers must be JSON, by eight clients."""
    target.again(
        lambda: target.ask(CHAT, asked([noise(64, 64)], response_format=JSON, max_tokens=32)), 8
    )
