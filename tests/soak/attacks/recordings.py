"""Audio files with odd headers, and many audio files."""

from __future__ import annotations

import itertools
import struct

from tests.soak.attacks.forms import AUDIO, form, kind
from tests.soak.attacks.target import Target, attack

numbers = itertools.count()


def wave(rate: int, channels: int, data: bytes, bits: int = 16, said: int | None = None) -> bytes:
    """A WAV file; ``said``: bytes that its header claims."""
    align = channels * bits // 8
    head = struct.pack(
        "<HHIIHH", 1, channels, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits
    )
    size = len(data) if said is None else said
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", (len(body) + size - len(data)) & 0xFFFFFFFF) + body


def transcribe(target: Target, audio: bytes) -> None:
    """Ask for the text of a recording."""
    parts = [("name=model", b"whisper-1"), ('name=file; filename="x.wav"', audio)]
    target.ask(AUDIO, form(parts), kind())


@attack()
def odd_rates(target: Target) -> None:
    """Recordings of 244 bytes at rates that have no divisor in common with 16,000."""
    rates = (15_991, 1, 4_294_967_291, 191_999, 7, 999_983)
    target.again(lambda: transcribe(target, wave(rates[next(numbers) % 6], 1, b"\1\0" * 100)), 4)


@attack()
def many_channels(target: Target) -> None:
    """Recordings of 65,535 channels."""
    target.again(lambda: transcribe(target, wave(16_000, 65_535, b"\0" * (20 << 20))), 2)


@attack()
def headers_that_lie(target: Target) -> None:
    """Recordings whose headers claim 4 GB."""
    target.again(lambda: transcribe(target, wave(8000, 1, b"\1\0" * 50, said=0xFFFFFFF0)), 4)


@attack()
def long_silence(target: Target) -> None:
    """Recordings of 30 minutes of silence at 8 kHz."""
    audio = wave(8000, 1, b"\x80" * 14_400_000, bits=8)
    target.again(lambda: transcribe(target, audio), 2)


@attack()
def many_recordings(target: Target) -> None:
    """Short recordings, from 24 clients."""
    target.again(lambda: transcribe(target, wave(16_000, 1, b"\1\0" * 8000)), 24)


@attack()
def compressed_bombs(target: Target) -> None:
    """Bytes that begin like FLAC, Ogg and MP3, and end in zeros."""
    heads = (
        b"fLaC\0\0\0\x22" + b"\xff" * 34,
        b"OggS\0\2" + b"\xff" * 40,
        b"ID3\4\0\0\x7f\x7f\x7f\x7f",
    )
    target.again(lambda: transcribe(target, heads[next(numbers) % 3] + bytes(4 << 20)), 4)
