"""Decodes M4A, AAC and WebM with PyAV: what runs in the confined process of ``open_audio``.

A process decodes one file, block by block. FFmpeg finds no formats itself, because some of its
formats name other files. Nothing can be opened there, so what PyAV imports when it needs it is
imported here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import av
import av.audio.codeccontext
import av.subtitles.codeccontext
import av.subtitles.stream
import av.video.codeccontext
import numpy as np
from numpy.typing import NDArray

CODECS = frozenset({"aac", "opus", "vorbis", "mp3", "flac", "alac", "amr_nb", "amr_wb"})
_BLOCK = 1 << 20  # samples of a reply, at least
_LATE = 0.5  # seconds by which a file may be shorter than its header says
# Containers whose headers say how long the recording is; of others FFmpeg guesses.
_TOLD = ("mp4", "matroska")

_blocks: Iterator[NDArray[np.float32]] | None = None


def answer(request: bytes) -> bytes:
    """Begin a file, or decode more of it.

    A request that is not empty is a format, a zero byte and the file; the reply is JSON with
    ``rate`` and ``channels``, or with ``wrong``. An empty request gets the next samples in float32,
    averaged over channels, after the last ones nothing, and JSON with ``wrong`` for damaged data.
    """
    global _blocks
    if not request:
        if _blocks is None:  # another process had the file
            raise RuntimeError("no file was begun")
        try:
            return next(_blocks, np.zeros(0, np.float32)).tobytes()
        except ValueError as error:
            return _wrong(str(error))
    name, content = request.split(b"\0", 1)
    try:
        container: Any = av.open(io.BytesIO(content), format=name.decode())
    except (av.FFmpegError, ValueError) as error:
        return _wrong(f"it is damaged or incomplete ({_told(error)})")
    if not container.streams.audio:
        return _wrong("it has no sound")
    stream = container.streams.audio[0]
    codec = stream.codec_context.codec.canonical_name
    if codec not in CODECS and not codec.startswith("pcm_"):
        return _wrong(f"its sound is in {codec}, which is not supported")
    stream.codec_context.thread_count = 1
    rate = stream.codec_context.sample_rate
    _blocks = _decoded(container, stream, rate, name.decode())
    found = {"rate": rate, "channels": stream.codec_context.channels}
    return json.dumps(found).encode()


def _decoded(container: Any, stream: Any, rate: int, name: str) -> Iterator[NDArray[np.float32]]:
    """Blocks of samples. Raises: ValueError for a damaged file."""
    waiting, size, seen = list[NDArray[np.float32]](), 0, 0
    try:
        for frame in container.decode(stream):
            if frame.sample_rate != rate:
                raise ValueError("the sample rate changes")
            waiting.append(_mono(frame))
            size += len(waiting[-1])
            if size >= _BLOCK:
                yield np.concatenate(waiting)
                seen += size
                waiting, size = [], 0
    except av.FFmpegError as error:
        raise ValueError(f"it is damaged ({_told(error)})") from None
    seen += size
    told = _seconds(container, stream) if name in _TOLD else 0.0
    if seen < (told - _LATE) * rate:
        raise ValueError(
            f"truncated: its header says {told:.1f} s of audio, but it has {seen / rate:.1f} s"
        )
    if waiting:
        yield np.concatenate(waiting)


def _seconds(container: Any, stream: Any) -> float:
    """The length that the file states, or 0."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return float(container.duration or 0) / float(av.time_base)


def _mono(frame: Any) -> NDArray[np.float32]:
    samples: NDArray[Any] = frame.to_ndarray()
    if not frame.format.is_planar:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    if samples.dtype.kind == "u":
        samples = samples.astype(np.float32) / np.float32(128) - np.float32(1)
    elif samples.dtype.kind == "i":
        samples = samples / np.float32(2.0 ** (8 * samples.dtype.itemsize - 1))
    with np.errstate(over="ignore", invalid="ignore"):
        mono: NDArray[np.float32] = samples.mean(0, dtype=np.float32)
    return mono


def _told(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _wrong(text: str) -> bytes:
    """JSON whose length, unlike that of samples, is no multiple of 4."""
    reply = json.dumps({"wrong": text}).encode()
    return reply + b" " * (len(reply) % 4 == 0)
