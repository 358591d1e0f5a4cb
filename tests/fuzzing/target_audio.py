"""Target: uploads of audio to a server, with valid, odd and damaged headers."""

from __future__ import annotations

import io
import random
import struct
from functools import cache

import numpy as np

from tests.fuzzing.case import Case
from tests.fuzzing.live_server import live, request
from tests.fuzzing.target_requests import injure

_LIBRARY = (("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("AIFF", "PCM_16"), ("AU", "ULAW"),
            ("W64", "FLOAT"), ("RF64", "PCM_24"), ("CAF", "ALAC_16"), ("MP3", "MPEG_LAYER_III"),
            ("WAV", "IMA_ADPCM"), ("WAV", "GSM610"), ("OGG", "OPUS"))  # fmt: skip
_RATES = (16_000, 8000, 44_100, 1, 0, 7, 15_991, 192_000, 999_983, 2**31, 2**32 - 5)
_CHANNELS = (1, 1, 1, 2, 2, 6, 0, 8, 9, 255, 1024, 65_535)


def audio(case: Case) -> None:
    """A recording whose header says odd things, or another format's with injured bytes."""
    rng = case.rng
    if rng.random() < 0.6:
        raw = bytearray(wave(rng))
    else:
        raw = bytearray(encoded(*rng.choice(_LIBRARY), rng.randrange(4)))
    for _ in range(rng.choice((0, 0, 1, 1, 4))):
        at = rng.randrange(min(len(raw), 120) or 1)
        if rng.random() < 0.6 and raw:
            raw[at : at + 4] = struct.pack(
                "<I", rng.choice((0, 1, 2**31, 2**32 - 1, 2**16, 24_000))
            )
        else:
            injure(rng, raw, (b"data", b"fmt ", b"LIST", b"\xff\xff\xff\xff", b"\0\0\0\0"))
    head = b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    body = b"--b\r\n" + head + bytes(raw) + b"\r\n--b--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    whole = request("/v1/audio/transcriptions", kind, body)
    case.attempt("read", live().exchange, case, [whole])


def wave(rng: random.Random) -> bytes:
    """A WAV file, each field of whose header may be odd."""
    odd = rng.random() < 0.7
    rate = rng.choice(_RATES) if odd else 16_000
    channels = rng.choice(_CHANNELS) if odd else 1
    bits = rng.choice((16, 16, 8, 24, 32, 64, 0, 1, 12, 65_535)) if odd else 16
    tag = rng.choice((1, 1, 1, 3, 6, 7, 0xFFFE, 0, 0x55)) if odd else 1
    data = rng.randbytes(rng.choice((0, 1, 200, 3200, 16_001)))
    align = channels * bits // 8 if rng.random() < 0.9 else rng.randrange(1 << 16)
    fmt = struct.pack(
        "<HHIIHH", tag, channels, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits
    )
    if tag == 0xFFFE:
        fmt += struct.pack("<HHIH", 22, bits, 0, rng.choice((1, 3, 9))) + b"\0" * 14
    said = len(data) if rng.random() < 0.7 else rng.choice((0, 1, 2**32 - 1, 2**31, len(data) * 2))
    chunks = [(b"fmt ", len(fmt), fmt), (b"data", said, data)]
    for _ in range(rng.choice((0, 0, 1, 3))):
        extra = rng.randbytes(rng.choice((0, 1, 40)))
        size = len(extra) if rng.random() < 0.8 else rng.choice((2**32 - 1, 0, 3))
        chunks.insert(
            rng.randrange(3), (rng.choice((b"LIST", b"fact", b"fmt ", b"data")), size, extra)
        )
    body = b"WAVE" + b"".join(
        name + struct.pack("<I", size) + part + b"\0" * (len(part) % 2)
        for name, size, part in chunks
    )
    return rng.choice((b"RIFF", b"RIFF", b"RIFX", b"RF64")) + struct.pack("<I", len(body)) + body


@cache
def encoded(kind: str, subtype: str, seed: int) -> bytes:
    """A tenth of a second of noise by the library; nothing where it lacks the format."""
    import soundfile

    rate = (8000, 16_000, 48_000, 16_000)[seed]
    noise = np.random.default_rng(seed).normal(size=(rate // 10, 1 + seed % 2)) / 8
    file = io.BytesIO()
    try:
        soundfile.write(file, noise, rate, format=kind, subtype=subtype)
    except (soundfile.LibsndfileError, ValueError):
        return b""
    return file.getvalue()
