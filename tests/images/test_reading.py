"""Images of every kind, and files that are none."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trinity.errors import InputError
from trinity.images import reading
from trinity.images.reading import ImageLike, read_image
from trinity.images.settings import Cutting, ImageSettings
from trinity.processes.confined import Confined

GRADIENT = np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3) * 3


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


WHOLE = Cutting(
    "rectangle",
    ImageSettings(
        tile=0, longest_edge=0, splits=False, resample=2, unit=1, least_pixels=1,
        most_pixels=reading.MOST_PIXELS,
    ),
    "",
)  # fmt: skip


def read(image: ImageLike, where: str, cutting: Cutting = WHOLE) -> np.ndarray:
    """The pixels of an image, or of its last part."""
    return read_image(image, where, cutting).squares.images[-1]


def pixels(content: bytes) -> np.ndarray:
    return read(content, "image 0")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "WEBP"])
def test_formats_without_losses(kind: str) -> None:
    content = encoded(
        Image.fromarray(GRADIENT), kind, **({"lossless": True} if kind == "WEBP" else {})
    )
    np.testing.assert_array_equal(pixels(content), GRADIENT)


def test_jpeg() -> None:
    smooth = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    assert np.abs(pixels(encoded(Image.fromarray(smooth), "JPEG")).astype(int) - smooth).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_rotated_as_exif_says(orientation: int) -> None:
    image, exif = Image.fromarray(GRADIENT), Image.Exif()
    exif[0x0112] = orientation
    turns = {
        1: GRADIENT, 2: GRADIENT[:, ::-1], 3: GRADIENT[::-1, ::-1], 4: GRADIENT[::-1],
        5: GRADIENT.transpose(1, 0, 2), 6: GRADIENT[::-1].transpose(1, 0, 2),
        7: GRADIENT[::-1, ::-1].transpose(1, 0, 2), 8: GRADIENT.transpose(1, 0, 2)[::-1],
    }  # fmt: skip
    np.testing.assert_array_equal(pixels(encoded(image, exif=exif)), turns[orientation])


def test_transparent_parts_are_white() -> None:
    values = np.zeros((2, 2, 4), np.uint8)
    values[0, 0] = 255, 0, 0, 255
    values[0, 1] = 0, 0, 0, 128
    found = pixels(encoded(Image.fromarray(values)))
    assert found[0, 0].tolist() == [255, 0, 0]
    assert found[0, 1].tolist() == [127, 127, 127]
    assert found[1].tolist() == [[255, 255, 255]] * 2
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    assert pixels(encoded(palette, transparency=0)).tolist() == [[[255] * 3, [40, 50, 60]]]
    with_alpha = Image.fromarray(np.array([[[90, 255], [90, 0]]], np.uint8), "LA")
    assert pixels(encoded(with_alpha)).tolist() == [[[90] * 3, [255] * 3]]


def test_grey_values_of_one_eight_and_sixteen_bits() -> None:
    grey = GRADIENT[..., 0]
    np.testing.assert_array_equal(pixels(encoded(Image.fromarray(grey)))[..., 1], grey)
    deep = Image.fromarray(grey.astype(np.uint16) * 256 + 77)
    np.testing.assert_array_equal(pixels(encoded(deep))[..., 2], grey)
    assert pixels(encoded(Image.fromarray(grey > 50))).tolist() == [
        [[255 * bool(value > 50)] * 3 for value in row] for row in grey
    ]


def test_cmyk() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert np.abs(pixels(encoded(image, "JPEG")).astype(int) - (255, 0, 0)).max() < 8


def test_of_an_animation_the_first_frame_counts() -> None:
    frames = [Image.new("RGB", (4, 4), (value, 0, 0)) for value in (200, 100, 0)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(content)[0, 0].tolist() == [200, 0, 0]


def test_arrays_and_images_of_pillow(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read(GRADIENT, "a"), GRADIENT)
    np.testing.assert_array_equal(read(Image.fromarray(GRADIENT), "a"), GRADIENT)
    grey = read(GRADIENT[..., 0], "a")
    np.testing.assert_array_equal(grey, np.repeat(GRADIENT[..., :1], 3, 2))
    (tmp_path / "é.png").write_bytes(encoded(Image.fromarray(GRADIENT)))
    np.testing.assert_array_equal(read(tmp_path / "é.png", "a"), GRADIENT)


CUTTINGS = [
    Cutting("square", ImageSettings(tile=5, longest_edge=5, splits=False, resample=2), "tower"),
    Cutting("tiles", ImageSettings(tile=8, longest_edge=24, splits=True, resample=1), "tower"),
    WHOLE._replace(settings=replace(WHOLE.settings, unit=4, most_pixels=300)),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("cutting", CUTTINGS, ids=lambda one: one.cut)
@pytest.mark.parametrize("width", [30, 3000])
def test_files_are_cut_like_arrays(cutting: Cutting, width: int) -> None:
    rng = np.random.default_rng(width)
    image = rng.integers(0, 256, (40 if width == 30 else 1000, width, 3), dtype=np.uint8)
    here = read_image(image, "a", cutting)
    there = read_image(encoded(Image.fromarray(image), compress_level=1), "a", cutting)
    assert there.digest == here.digest
    assert there.squares[1:] == here.squares[1:]
    for one, other in zip(there.squares.images, here.squares.images, strict=True):
        np.testing.assert_array_equal(one, other)


def test_digests_differ_by_pixels_shape_and_tower() -> None:
    digests = [
        read_image(encoded(Image.fromarray(image)), "a", WHOLE._replace(tower=tower)).digest
        for image in (GRADIENT, GRADIENT.reshape(4, 6, 3), GRADIENT + 1)
        for tower in ("", "tower")
    ]
    assert len(set(digests)) == len(digests)


def test_a_shape_that_the_model_does_not_read_is_refused() -> None:
    with pytest.raises(InputError, match="an image has 201 x 1 pixels"):
        read(encoded(Image.new("L", (201, 1))), "a")


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header says a size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


PNG = encoded(Image.fromarray(GRADIENT))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an image, but empty"),
        (b"hello", "not an image; PNG, JPEG, WebP, GIF and BMP are read"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (PNG[:20], "or it is damaged"),
        (PNG[: len(PNG) // 2], "damaged"),
        (bomb(60_000, 60_000), "too many pixels"),
        (bomb(64_001, 1000), "64001 x 1000 pixels"),
        (bomb(1000, 1000), "damaged or incomplete"),
        (encoded(Image.fromarray(GRADIENT), "TIFF"), "not an image"),
        (encoded(Image.fromarray(GRADIENT), "PDF"), "not an image"),
    ],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(content, "image 3")
    assert str(caught.value).startswith("image 3")
    assert "object at 0x" not in str(caught.value)


def test_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "MOST_FRAMES", 2)
    frames = [Image.new("RGB", (4, 4), (value, 0, 0)) for value in (200, 100, 0)]
    animated = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="has 3 frames"):
        read(animated, "a")
    monkeypatch.setattr(reading, "MOST_BYTES", 50)
    with pytest.raises(
        InputError, match="a has more than 50 bytes, the limit for an image: make it smaller"
    ):
        read(PNG, "a")
    for wrong in (
        np.zeros((2, 2), np.float32),
        np.zeros((2, 2, 5), np.uint8),
        np.zeros((0, 2), np.uint8),
    ):
        with pytest.raises(InputError, match="is an array"):
            read(wrong, "a")
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        read(tmp_path / "none.png", "a")
    with pytest.raises(InputError, match="it must be the path of a file"):
        read(3, "a")  # type: ignore[arg-type]


def many_scans() -> bytes:
    """A progressive JPEG that decodes its last scan thousands of times."""
    image = Image.new("RGB", (2000, 2000))
    whole = encoded(image, "JPEG", progressive=True)
    start = whole.rindex(b"\xff\xda")
    return whole[:-2] + whole[start:-2] * 3000 + whole[-2:]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (many_scans(), "it ran for more than [0-9.]+ seconds"),
        (encoded(Image.new("RGB", (3000, 2000)), "WEBP"), "it used more than 70 MB of memory"),
    ],
    ids=["time", "memory"],
)
def test_files_that_are_costly_to_decode(
    content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Confined("trinity.images.decoding", memory_bytes=70_000_000, seconds=0.5, raw=True)
    monkeypatch.setattr(reading, "_DECODER", decoder)
    with pytest.raises(InputError, match=message):
        read(content, "image 3")
    np.testing.assert_array_equal(pixels(PNG), GRADIENT)
    decoder.close()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_mutated_images_are_read_or_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(0, 256, (40, 30, 3), dtype=np.uint8))
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
        whole = np.frombuffer(encoded(image, kind), np.uint8)
        for _ in range(40):
            changed = whole.copy()
            for at in rng.integers(0, len(whole), rng.integers(1, 6)):
                changed[at] = rng.integers(256)
            cut = changed[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else changed
            try:
                found = read(cut.tobytes(), "image")
            except InputError:
                continue
            assert found.shape[2] == 3
            assert found.size <= 3 * reading.MOST_PIXELS
