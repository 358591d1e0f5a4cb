"""Targets: images in files and requests, mmproj files and directories of vision models."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, PngImagePlugin

import trinity
from tests.fuzzing import models, values, weights
from tests.fuzzing.case import Case, Finding
from tests.fuzzing.gguf_draft import ARRAY, BOOL, F32, STRING, U32, Draft, Tensor, Value
from tests.fuzzing.gguf_draft import injure as injure_gguf
from tests.fuzzing.live_server import live, request
from tests.fuzzing.target_huggingface import Json, replace_one, safetensors_bytes
from tests.fuzzing.target_requests import injure
from tests.images import small_internvl_models as internvl
from tests.images import small_vision_models as small
from tests.images.mmproj_files import write_mmproj
from trinity.formats import GGUFProvider
from trinity.images.opening import open_encoder
from trinity.images.reading import MOST_PIXELS, read_image
from trinity.images.settings import Cutting, ImageSettings

_NAMES = tuple(small.SPECIAL)
_CHAT = "internvl_chat"  # a directory of InternVLChatModel
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_SIZES = (0, 1, 2, 255, 8000, 16_383, 16_384, 65_535, 1 << 24, 1 << 31, (1 << 32) - 1)
_PIECES = (
    b"\xff\xd8", b"\xff\xda", b"\xff\xc2", b"\xff\xe1", b"Exif\0\0", b"IDAT", b"acTL", b"fdAT",
    b"iCCP", b"zTXt", b"tRNS", b"PLTE", b"VP8X", b"VP8L", b"ALPH", b"ANMF", b"\x21\xf9", b"\x2c",
    b"\xff\xff\xff\xff", b"\0\0\0\0", b"GIF89a", b"BM", b"II*\0",
)  # fmt: skip
_CUTTINGS = (
    Cutting("square", ImageSettings(tile=32, longest_edge=32, splits=False, resample=2), ""),
    Cutting("scanned", ImageSettings(
        tile=32, longest_edge=32, splits=False, resample=2, most_crops=4, least_crop=5,
        least_ratio=1.2,
    ), ""),
    Cutting("tiles", ImageSettings(tile=16, longest_edge=64, splits=True, resample=1), ""),
    Cutting("rectangle", ImageSettings(
        tile=0, longest_edge=0, splits=False, resample=3, unit=4, least_pixels=1 << 6,
        most_pixels=1 << 12,
    ), ""),
    Cutting("filled", ImageSettings(
        tile=0, longest_edge=0, splits=False, resample=3, unit=6, least_pixels=1,
        most_pixels=36 * 70,
    ), ""),
    Cutting("grid", ImageSettings(
        tile=32, longest_edge=32, splits=True, resample=3, most_tiles=6,
    ), ""),
    Cutting("anyres", ImageSettings(
        tile=32, longest_edge=32, splits=False, resample=3, shortest_edge=40,
    ), ""),
    Cutting("anyres", ImageSettings(
        tile=32, longest_edge=32, splits=True, resample=3, pinpoints=((32, 64), (64, 32)),
    ), ""),
    Cutting("shrunk", ImageSettings(
        tile=0, longest_edge=96, splits=False, resample=3, unit=8,
    ), ""),
    Cutting("fitted", ImageSettings(
        tile=32, longest_edge=0, splits=True, resample=2, unit=16, least_pixels=4 << 8,
        most_pixels=10 << 8, least_tiles=2, most_tiles=6, patch=8, most_excess=2.0,
        torchvision=True,
    ), ""),
    Cutting("sliced", ImageSettings(
        tile=32, longest_edge=32, splits=True, resample=3, unit=8, most_tiles=9,
    ), ""),
)  # fmt: skip


def image(case: Case) -> None:
    """A damaged image is read, or sent to a server with a vision model."""
    rng = case.rng
    content = bytearray(rng.choice(_images()))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        _damage(rng, content)
    case.num_bytes += len(content)
    if rng.random() < 0.15:
        case.attempt("token", live().exchange, case, [_asked(rng, bytes(content))])
        return
    found = case.attempt("read", read_image, bytes(content), "image 0", rng.choice(_CUTTINGS))
    for part in () if found is None else found.squares.images:
        if part.shape[2:] != (3,) or part.size > 3 * MOST_PIXELS:
            raise Finding("image", f"a part of {part.shape}")
    for refusal in case.refusals:
        if "ended" in refusal:  # Pillow crashed; a limit of time or memory is no finding
            raise Finding("decoder", refusal)


def _damage(rng: random.Random, content: bytearray) -> None:
    """Damage an image; mostly with checksums that fit."""
    if rng.random() < 0.5:
        injure(rng, content, _PIECES)
    elif len(content) > 30:
        size = rng.choice(_SIZES)
        order = rng.choice(("<I", ">I", "<H", ">H"))
        value = struct.pack(order, size % (1 << 8 * struct.calcsize(order)))
        at = rng.randrange(min(len(content), rng.choice((30, 60, 400))))
        content[at : at + len(value)] = value
    if content.startswith(b"\x89PNG") and rng.random() < 0.8:
        _sign(content)


def _sign(content: bytearray) -> None:
    """Compute the checksums of a PNG file's chunks."""
    at = 8
    while at + 12 <= len(content):
        end = at + 8 + int.from_bytes(content[at : at + 4], "big")
        content[end : end + 4] = struct.pack(">I", zlib.crc32(content[at + 4 : end]))
        at = end + 4


def _asked(rng: random.Random, content: bytes) -> bytes:
    """A request with an image, in the form of one of the APIs."""
    text = base64.b64encode(content).decode()
    kind = rng.choice(("png", "jpeg", "webp", "gif", "bmp", "svg+xml", "", "png;charset=x", "*"))
    if rng.random() < 0.2:
        text = rng.choice((text[:-1], text + "=", text + values.text(rng), values.text(rng), ""))
    url = f"data:image/{kind};base64,{text}"
    if rng.random() < 0.1:
        odd = "http://127.0.0.1/a.png", "file:///etc/passwd", values.text(rng)
        url = rng.choice((url[5:], text, url.replace("base64,", ""), url.replace(",", ";"), *odd))
    path, part = rng.choice((
        ("/v1/chat/completions", {"type": "image_url", "image_url": {"url": url}}),
        ("/v1/responses", {"type": "input_image", "image_url": url}),
        ("/v1/messages", {"type": "image", "source": {
            "type": "base64", "media_type": f"image/{kind}", "data": text}}),
        ("/api/chat", {"images": [text]}),
    ))  # fmt: skip
    message: Json = {"role": "user", "content": [part]}
    if path == "/api/chat":
        message = {"role": "user", "content": "x", **part}
    body: Json = {"model": "vision", "stream": False}
    body |= {"input" if path == "/v1/responses" else "messages": [message]}
    limits: dict[str, Json] = {
        "/api/chat": {"options": {"num_predict": 1}}, "/v1/responses": {"max_output_tokens": 1},
    }  # fmt: skip
    limit = limits.get(path, {"max_tokens": 1})
    body |= limit
    if rng.random() < 0.2:
        replace_one(rng, body)
        body = limit | body
    return request(path, {"Content-Type": "application/json"}, json.dumps(body).encode())


@cache
def _images() -> list[bytes]:
    """Sound images of every format and mode, with metadata, frames and layers."""
    found = list[bytes]()
    picture = small.image(23, 17)
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x8769] = {0x9003: "2020:01:01 00:00:00"}
    for mode in ("RGB", "L", "P", "RGBA", "CMYK", "LA", "1", "I;16"):
        changed = Image.new(mode, (23, 17)) if mode == "I;16" else picture.convert(mode)
        for kind in _FORMATS:
            for options in (
                {"exif": exif}, {"progressive": True, "transparency": 0, "lossless": True},
                {"icc_profile": bytes(200), "comment": b"x", "optimize": True},
                {"save_all": True, "append_images": [changed.rotate(90)] * 3},
            ):  # fmt: skip
                file = io.BytesIO()
                try:
                    changed.save(file, kind, **options)
                except (OSError, ValueError, TypeError, KeyError, SystemError):
                    continue
                found.append(file.getvalue())
    told, file = PngImagePlugin.PngInfo(), io.BytesIO()
    told.add_text("a", "b" * 1000, zip=True)
    told.add_itxt("c", "d", zip=True)
    picture.save(file, "PNG", pnginfo=told)
    return [*found, file.getvalue()]


def mmproj(case: Case) -> None:
    """A projector that is sound, says odd things, or has injured bytes; then an image."""
    rng = case.rng
    name = rng.choice(_NAMES)
    draft = _projector(name, rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        if rng.random() < 0.5:
            key, old = rng.choice(draft.keys)
            size = old.content if isinstance(old.content, int) else 2
            new = rng.choice((size - 1, size + 1, 2 * size, size // 2, values.integer(rng)))
            draft.set(key, Value(U32, new) if old.type == U32 else old)
        else:
            models.change(draft, rng)
    out, marks, bounds = draft.encode()
    if rng.random() < 0.3:
        injure_gguf(rng, out, marks, bounds)
    path = case.write("mmproj.gguf", bytes(out))
    with _text_model(name).exclusive() as engine:
        provider: Any = None  # it is for directories
        encoder = case.attempt("loaded", open_encoder, provider, engine, path, None, print)
        if encoder is not None:
            case.attempt("token", encoder.encode, small.image(40, 30))
            encoder.close()


def _projector(name: str, rng: random.Random) -> Draft:
    """The model's mmproj file; its weights may have another type."""
    sound = _sound_projector(name)
    draft = Draft(keys=list(sound.keys))
    kind = rng.choice(("F32", "F16", "BF16", "Q8_0"))
    for own, dims, type_id, data in sound.tensors:
        fits = len(dims) > 1 and dims[0] % weights.block_size(kind) == 0
        if fits or rng.random() < 0.02:
            data, type_id = weights.content(kind, dims, rng, 0.01), weights.file_type_id(kind)
        draft.tensors.append(Tensor(own, list(dims), type_id, data))
    return draft


class _Sound(NamedTuple):
    keys: list[tuple[str, Value]]
    tensors: list[tuple[str, list[int], int, bytes]]


@cache
def _sound_projector(name: str) -> _Sound:
    with tempfile.TemporaryDirectory() as folder:
        path = write_mmproj(name, Path(folder) / "mmproj.gguf")
        with GGUFProvider(path) as provider:
            keys = [(key, _value(content)) for key, content in provider.metadata.items()]
            tensors = [
                (own, list(tensor.shape[::-1]), weights.file_type_id(tensor.type),
                 tensor.data.tobytes())
                for own, tensor in ((own, provider.tensor(own)) for own in provider.tensor_names())
            ]  # fmt: skip
    return _Sound(keys, tensors)


def _value(content: object) -> Value:
    if isinstance(content, str):
        return Value(STRING, content)
    if isinstance(content, bool):
        return Value(BOOL, content)
    if isinstance(content, int | float):
        return Value(U32 if isinstance(content, int) else F32, content)
    listed = np.asarray(content)
    element = {"b": BOOL, "f": F32}.get(listed.dtype.kind, U32)
    return Value(ARRAY, listed.tolist(), element)


@cache
def _tensors(name: str) -> dict[str, Any]:
    if name == _CHAT:
        return internvl.chat_tensors(small.tensors("internvl"))
    return small.tensors(name)


@cache
def _directory(name: str) -> dict[str, bytes]:
    """The files of a sound vision model, but for its weights."""
    with tempfile.TemporaryDirectory() as folder:
        if name == _CHAT:
            made = small.write_chat_directory("internvl", Path(folder))
        else:
            made = small.write_directory(name, Path(folder))
        files = made.glob("*.json")
        return {file.name: file.read_bytes() for file in files}


@cache
def _text_model(name: str) -> trinity.Model:
    with tempfile.TemporaryDirectory() as folder:
        return trinity.load(small.write_directory(name, Path(folder)), threads=1)


def vision(case: Case) -> None:
    """A directory with a vision tower, of which some is wrong; then a chat with an image."""
    rng = case.rng
    name = rng.choice((*_NAMES, _CHAT))
    folder = case.folder / "hf"
    folder.mkdir()
    files = dict(_directory(name))
    for _ in range(rng.choice((0, 1, 1, 2))):
        file = rng.choice(("config.json", "preprocessor_config.json", *files))
        content = json.loads(files[file])
        inner = content.get("vision_config")
        replace_one(rng, inner if isinstance(inner, dict) and rng.random() < 0.6 else content)
        files[file] = json.dumps(content).encode()
    for file, raw in files.items():
        if rng.random() < 0.99:
            case.write(f"hf/{file}", raw)
    stored = {
        own: ("F32", list(tensor.shape), tensor.tobytes())
        for own, tensor in _tensors(name).items()
        if rng.random() < 0.999
    }
    case.write("hf/model.safetensors", safetensors_bytes(rng, stored, rng.random() < 0.2))
    options = {"threads": 1, "context_length": 512, "progress": case.progress}
    model = case.attempt("loaded", trinity.load, folder, **options)
    if model is not None:
        with model:
            picture = {"type": "image", "image": small.image(30, 20)}
            asked = [{"role": "user", "content": [picture, {"type": "text", "text": "?"}]}]
            case.attempt("token", model.chat, asked, max_tokens=1, temperature=0.0)
