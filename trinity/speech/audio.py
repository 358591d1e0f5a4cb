"""Reads audio as 16 kHz mono float32, from arrays and files, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.formats.mapping import path_text
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
    return lambda: _by_library(path)


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
            "pip install soundfile, or convert it (ffmpeg -i FILE -ar 16000 -ac 1 OUT.wav)"
        ) from None
    try:
        with soundfile.SoundFile(path) as file:
            rate = int(file.samplerate)
            check_limits(path, rate, file.channels)
            yield from _resampled(_blocks(file, path), rate)
    except soundfile.SoundFileError as error:
        raise FormatError(
            f"{path}: soundfile cannot read it: {error}; convert it "
            "(ffmpeg -i FILE -ar 16000 -ac 1 OUT.wav)"
        ) from error


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
