"""Images for a model that reads them."""

from __future__ import annotations

import base64
import functools
import io
import itertools
import random
import struct
import time
import zlib

from PIL import Image

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


def bodies_of_every_api(images: list[bytes]) -> list[tuple[str, dict[str, object]]]:
    """Questions about images on Ollama's two APIs, Responses and Anthropic's API."""
    texts = [base64.b64encode(one).decode() for one in images]
    urls = [f"data:image/png;base64,{text}" for text in texts]
    inputs = [{"type": "input_image", "image_url": url} for url in urls]
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}
        for text in texts
    ]
    few = {"options": {"num_predict": 2}, "stream": False, "model": "vision"}
    return [
        ("/api/chat", {**few, "messages": [{"role": "user", "content": "x", "images": texts}]}),
        ("/api/generate", {**few, "prompt": "x", "images": texts}),
        ("/v1/responses", {"input": [{"role": "user", "content": inputs}], "max_output_tokens": 2}),
        ("/v1/messages", {"messages": [{"role": "user", "content": blocks}], "max_tokens": 2}),
    ]


@attack("vision")
def images_on_every_api(target: Target) -> None:
    """New images on Ollama's APIs, Responses and Anthropic's API."""
    number = itertools.count()

    def ask() -> None:
        bodies = bodies_of_every_api([noise(200, 200)])
        target.ask(*bodies[next(number) % len(bodies)])

    target.again(ask, 8)


@attack("vision")
def many_images_on_every_api(target: Target) -> None:
    """30,000 images of one pixel in a request; no context has room for them."""
    bodies = bodies_of_every_api([png(1, 1, b"\0\0\0\0")] * 30_000)
    number = itertools.count()
    target.again(lambda: target.ask(*bodies[next(number) % len(bodies)]), 4)


@attack()
def images_for_a_model_that_reads_none(target: Target) -> None:
    """Images of 3 MB on four APIs of a model without a tower."""
    bodies = bodies_of_every_api([noise(1000, 1000)])
    number = itertools.count()
    target.again(lambda: target.ask(*bodies[next(number) % len(bodies)]), 8)


@functools.cache
def animation(frames: int) -> bytes:
    """A GIF file of so many different frames."""
    stream, size = io.BytesIO(), (64, 64)
    pictures = [Image.new("L", size, i % 251) for i in range(frames)]
    pictures[0].save(stream, "GIF", save_all=True, append_images=pictures[1:])
    return stream.getvalue()


@attack("vision")
def animations(target: Target) -> None:
    """Animations of 1,000 frames, of which one is read, and of 1,001."""
    wanted = itertools.cycle((animation(1000), animation(1001)))
    target.again(lambda: target.ask(CHAT, asked([next(wanted)])), 4)


@attack("vision")
def images_with_thousands_of_scans(target: Target) -> None:
    """JPEG files that take the decoder 8 s of processor time, until it is stopped."""
    stream = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(stream, "JPEG", progressive=True)
    whole = stream.getvalue()
    start = whole.rindex(b"\xff\xda")
    bomb = whole[:-2] + whole[start:-2] * 3000 + whole[-2:]
    target.again(lambda: target.ask(CHAT, asked([bomb])), 4)


@attack("vision")
def images_of_odd_shapes(target: Target) -> None:
    """Images of 64 million x 1 pixels and of 1 x 65,000."""
    shapes = [png(16_000_000, 1, b"\0" * 2_000_001, 0, 1), png(1, 65_000, b"\0\0" * 65_000, 0)]
    wanted = itertools.cycle(shapes)
    target.again(lambda: target.ask(CHAT, asked([next(wanted)])), 4)


def about_url(url: str) -> dict[str, object]:
    """A chat about the image of a URL."""
    content = [{"type": "image_url", "image_url": {"url": url}}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 1}


@attack("vision")
def base64_in_single_letters(target: Target) -> None:
    """An image in base64 of 4 MB with a space after each letter."""
    body = about_url("data:image/png;base64," + "A " * 2_000_000)
    target.again(lambda: target.ask(CHAT, body), 4)


@attack("vision")
def urls_of_escapes(target: Target) -> None:
    """A data URL of 1.3 million escapes."""
    target.again(lambda: target.ask(CHAT, about_url("data:image/png," + "%41" * 1_300_000)), 4)


@attack("vision")
def images_sent_slowly(target: Target) -> None:
    """Images of 300 KB in pieces of 16 KB with pauses, by 32 clients."""

    def ask() -> None:
        data = target.request(CHAT, asked([noise(300, 300)]))
        with target.connect() as client:
            for start in range(0, len(data), 1 << 14):
                target.write(client, data[start : start + (1 << 14)])
                time.sleep(0.05)
            target.count(client.recv(1 << 16)[9:12].decode() or "none")

    target.again(ask, 32)
