"""Reads audio as 16 kHz mono float32, from arrays and files, block by block."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import (
    ConfinedError,
    ConfinedUnavailableError,
    FormatError,
    InputError,
    UnsupportedError,
)
from trinity.formats.mapping import path_text
from trinity.processes.confined import Confined
from trinity.speech.resampling import RATE, Resampler
from trinity.speech.wav import (
    LEAST_RATE,
    MOST_CHANNELS,
    MOST_RATE,
    check_limits,
    is_wav,
    read_blocks,
    read_header,
)

_BLOCK = 1 << 16  # samples of each channel that are decoded at once
_CONVERT = "convert it (ffmpeg -i FILE -ar 16000 -ac 1 OUT.wav)"
_MATROSKA = b"\x1a\x45\xdf\xa3"
# Of the process that decodes a file: what it may use beyond the file, and for one block.
_DECODER_BYTES, _DECODER_SECONDS, _DECODER_REPLY = 1 << 29, 20.0, 1 << 24
Blocks = Callable[[], Iterator[NDArray[np.float32]]]
AudioLike = str | os.PathLike[str] | NDArray[Any]


def open_audio(audio: AudioLike, rate: int = RATE) -> Blocks:
    """A function that returns the audio's blocks at 16 kHz, each time from the beginning.

    ``audio``: a path, or samples of shape (n,) or (n, channels), floats from -1 to 1 or integers,
    with ``rate`` samples per second. Raises: InputError, FormatError, UnsupportedError; errors
    about samples are raised when these are read.
    """
    if isinstance(audio, np.ndarray):
        samples = _mono(audio)
        if not LEAST_RATE <= rate <= MOST_RATE:
            raise InputError(f"rate is {rate}; it must be from {LEAST_RATE} to {MOST_RATE}")
        return lambda: _resampled(iter([samples]), rate)
    path = path_text(audio)
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); give an audio file"
        ) from error
    if is_wav(head):
        with open(path, "rb") as file:
            read_header(file, path)  # report a wrong file now
        return lambda: _wav(path)
    if not head:
        raise FormatError(f"{path}: the file is empty; give an audio file")
    kind = _kind_of(head)
    return (lambda: _by_library(path)) if kind is None else (lambda: _by_ffmpeg(path, kind))


def _kind_of(head: bytes) -> str | None:
    """FFmpeg's name of a format that soundfile does not read."""
    if head[4:8] == b"ftyp":
        return "mp4"  # and M4A, MOV, 3GP
    if head[:4] == _MATROSKA:
        return "matroska"  # and WebM
    if head[:1] == b"\xff" and head[1:2] and head[1] & 0xF6 == 0xF0:
        return "aac"
    return None


def _mono(samples: NDArray[Any]) -> NDArray[np.float32]:
    if samples.ndim not in (1, 2) or samples.size == 0:
        raise InputError(
            f"the audio has the shape {samples.shape}; expected (samples,) or (samples, channels), "
            "and at least one sample"
        )
    if samples.ndim == 2 and samples.shape[1] > MOST_CHANNELS:
        raise InputError(
            f"the audio has {samples.shape[1]} channels, of the shape {samples.shape}; expected "
            f"(samples, channels) and at most {MOST_CHANNELS} channels"
        )
    if samples.dtype.kind == "i":
        values = samples.astype(np.float32) / np.float32(2.0 ** (8 * samples.dtype.itemsize - 1))
    elif samples.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            values = samples.astype(np.float32)
    else:
        raise InputError(f"the audio has the dtype {samples.dtype}; expected floats or integers")
    if values.ndim == 2:
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.mean(1)
    if not np.isfinite(values).all():
        raise InputError("the audio has samples that are not finite numbers")
    return values


def _wav(path: str) -> Iterator[NDArray[np.float32]]:
    with open(path, "rb") as file:
        form = read_header(file, path)
        yield from _resampled(read_blocks(file, form, path), form.rate)


def _by_library(path: str) -> Iterator[NDArray[np.float32]]:
    try:
        import soundfile  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise UnsupportedError(
            f"{path}: not a WAV file; other formats need soundfile, which is not installed: "
            f"pip install soundfile, or {_CONVERT}"
        ) from None
    try:
        with soundfile.SoundFile(path) as file:
            rate = int(file.samplerate)
            check_limits(path, rate, file.channels)
            yield from _resampled(_blocks(file, path), rate)
    except soundfile.SoundFileError as error:
        raise FormatError(f"{path}: soundfile cannot read it: {error}; {_CONVERT}") from error


def _by_ffmpeg(path: str, kind: str) -> Iterator[NDArray[np.float32]]:
    """Decode in a confined process. Raises: FormatError, UnsupportedError."""
    if importlib.util.find_spec("av") is None:
        raise UnsupportedError(
            f"{path}: M4A, AAC and WebM need av, which is not installed: pip install av, or "
            f"{_CONVERT}"
        )
    with open(path, "rb") as file:
        content = file.read()
    decoder = Confined(
        "trinity.speech.decoding",
        # A process that keeps a quarter of it is replaced, and it keeps the file.
        memory_bytes=4 * len(content) + _DECODER_BYTES,
        seconds=_DECODER_SECONDS,
        reply_bytes=_DECODER_REPLY,
        raw=True,
    )
    try:
        told = _told(decoder.call(kind.encode() + b"\0" + content), path)
        del content
        check_limits(path, told["rate"], told["channels"])
        yield from _resampled(_from_process(decoder, path), told["rate"])
    except ConfinedUnavailableError:
        raise
    except ConfinedError as error:
        raise FormatError(f"{path}: cannot be decoded: {error.reason}; {_CONVERT}") from error
    finally:
        decoder.close()


def _told(reply: bytes, path: str) -> dict[str, int]:
    """The reply of the process that reads a file. Raises: FormatError if it is an error."""
    told: dict[str, Any] = json.loads(reply)
    if "wrong" in told:
        raise FormatError(f"{path}: {told['wrong']}; {_CONVERT}")
    return told


def _from_process(decoder: Confined, path: str) -> Iterator[NDArray[np.float32]]:
    """The samples that the process decodes. Raises: FormatError, ConfinedError."""
    while reply := decoder.call(b""):
        if len(reply) % 4:
            _told(reply, path)
        block = np.frombuffer(reply, np.float32)
        if not np.isfinite(block).all():
            raise FormatError(f"{path}: has samples that are not finite numbers: it is damaged")
        yield block


def _blocks(file: Any, path: str) -> Iterator[NDArray[np.float32]]:
    """The samples that soundfile decodes, averaged over channels. Raises: FormatError.

    ``SoundFile.blocks`` yields as many samples as the header promises; after the end of the data
    these would be uninitialized memory.
    """
    while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
        with np.errstate(over="ignore", invalid="ignore"):
            mono = block.mean(1)
        if not np.isfinite(mono).all():
            raise FormatError(f"{path}: has samples that are not finite numbers: it is damaged")
        yield mono


def _resampled(blocks: Iterator[NDArray[np.float32]], rate: int) -> Iterator[NDArray[np.float32]]:
    if rate == RATE:
        yield from blocks
        return
    resampler = Resampler(rate)
    for block in blocks:
        yield resampler.push(block)
    yield resampler.finish()
