"""Reads WAV files: integers of 8 to 32 bits and floats."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, UnsupportedError

_BLOCK, _BYTES = 1 << 16, 1 << 22  # maximum number of frames and bytes per block
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_WIDTHS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}
_STREAMED = (0, 0xFFFFFFFF)  # lengths of writers that cannot seek back
MOST_RATE, LEAST_RATE, MOST_CHANNELS = 768000, 1000, 64


class WavForm(NamedTuple):
    """The header of a WAV file; ``frames`` is None if its writer did not know it."""

    kind: int
    bits: int
    channels: int
    rate: int
    frames: int | None


def is_wav(head: bytes) -> bool:
    """Whether a file that begins with these 12 bytes is a WAV file."""
    return head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE"


def read_header(file: BinaryIO, path: str) -> WavForm:
    """Read the header at the beginning of a file; the file is then at its first sample.

    Raises: FormatError, UnsupportedError.
    """
    file.read(12)
    kind = bits = channels = rate = 0
    while True:
        head = file.read(8)
        if len(head) < 8:
            missing = "fmt" if channels == 0 else "data"
            raise FormatError(f"{path}: the WAV file has no {missing} chunk: it is cut or damaged")
        name, size = struct.unpack("<4sI", head)
        if name == b"data":
            break
        if name == b"fmt ":
            body = file.read(min(size, 64))
            if size < 16 or len(body) < min(size, 64):
                raise FormatError(f"{path}: the WAV file's header is cut after {len(body)} bytes")
            kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
            if kind == _EXTENSIBLE and len(body) >= 26:
                kind = struct.unpack("<H", body[24:26])[0]
            file.seek(size - len(body) + size % 2, 1)
        else:
            file.seek(size + size % 2, 1)
    if channels == 0:
        raise FormatError(f"{path}: the WAV file has no fmt chunk before its samples")
    if bits not in _WIDTHS.get(kind, ()):
        raise UnsupportedError(
            f"{path}: WAV of format {kind} with {bits} bits a sample; PCM of 8, 16, 24 or 32 bits "
            "and floats of 32 or 64 are read: convert it (ffmpeg -i FILE -ar 16000 -ac 1 OUT.wav)"
        )
    check_limits(path, rate, channels)
    frames = None if size in _STREAMED else size // (channels * bits // 8)
    return WavForm(kind, bits, channels, rate, frames)


def check_limits(path: str, rate: int, channels: int) -> None:
    """Raise FormatError for an implausible sample rate or number of channels."""
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise FormatError(f"{path}: {rate} samples a second; expected {LEAST_RATE} to {MOST_RATE}")
    if channels > MOST_CHANNELS:
        raise FormatError(f"{path}: {channels} channels; expected 1 to {MOST_CHANNELS}")


def read_blocks(file: BinaryIO, form: WavForm, path: str) -> Iterator[NDArray[np.float32]]:
    """All samples, averaged over channels, from -1 to 1.

    Raises: FormatError if the file is shorter than its header says, or has samples that are not
    numbers.
    """
    frame = form.channels * form.bits // 8
    most, seen = min(_BLOCK, _BYTES // frame), 0
    while form.frames is None or seen < form.frames:
        wanted = most if form.frames is None else min(most, form.frames - seen)
        raw = file.read(wanted * frame)
        count = len(raw) // frame
        if count:
            samples = _floats(raw[: count * frame], form).reshape(count, form.channels)
            with np.errstate(over="ignore", invalid="ignore"):
                mono = samples.mean(1, dtype=np.float32)
            if not np.isfinite(mono).all():
                raise FormatError(f"{path}: has samples that are not finite numbers: it is damaged")
            yield mono
        seen += count
        if count < wanted:
            break
    if form.frames is not None and seen < form.frames:
        raise FormatError(
            f"{path}: truncated: its header says {form.frames / form.rate:.1f} s of audio, but it "
            f"has {seen / form.rate:.1f} s; copy it again, or repair it "
            "(ffmpeg -i FILE OUT.wav)"
        )


def _floats(raw: bytes, form: WavForm) -> NDArray[np.float32]:
    """Stored samples as floats from -1 to 1."""
    if form.kind == _FLOAT:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.frombuffer(raw, f"<f{form.bits // 8}").astype(np.float32)
    if form.bits == 8:
        return np.frombuffer(raw, "u1").astype(np.float32) / np.float32(128) - np.float32(1)
    if form.bits == 24:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, "u1").reshape(-1, 3)
        return wide.view("<i4").reshape(-1).astype(np.float32) / np.float32(2**31)
    scale = np.float32(2.0 ** (form.bits - 1))
    return np.frombuffer(raw, f"<i{form.bits // 8}").astype(np.float32) / scale
