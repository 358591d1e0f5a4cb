from __future__ import annotations

import struct
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.speech.audio import open_audio
from trinity.speech.clip import Clip
from trinity.speech.mel import log_mel, mel_filters, scaled

TONE = 0.5


def tone(rate: int, seconds: float, hertz: float = 440.0) -> np.ndarray[Any, Any]:
    return TONE * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)


def stored(samples: np.ndarray[Any, Any], kind: str) -> tuple[int, int, bytes]:
    """Format, bits and bytes of samples in a WAV file."""
    if kind.startswith("f"):
        return 3, int(kind[1:]), samples.astype(f"<f{int(kind[1:]) // 8}").tobytes()
    bits = int(kind[1:])
    if bits == 8:
        return 1, 8, np.round(samples * 127 + 128).astype("u1").tobytes()
    whole = np.round(samples * (2 ** (bits - 1) - 1)).astype("<i8")
    raw = whole.reshape(-1, 1).view("u1").reshape(-1, 8)[:, : bits // 8]
    return 1, bits, raw.tobytes()


def write_wav(
    path: Path, samples: np.ndarray[Any, Any], rate: int, kind: str = "i16", *,
    extensible: bool = False, size: int | None = None,
) -> None:  # fmt: skip
    """A WAV file of samples (n,) or (n, channels)."""
    form, bits, data = stored(samples.reshape(-1), kind)
    channels = samples.shape[1] if samples.ndim == 2 else 1
    frame = channels * bits // 8
    fields = (channels, rate, rate * frame, frame, bits)
    fmt = struct.pack("<HHIIHH", 0xFFFE if extensible else form, *fields)
    if extensible:
        fmt += struct.pack("<HHIH14s", 22, bits, 0, form, b"\x00\x00\x00\x00\x10\x00" + bytes(8))
    chunks = (
        b"LIST" + struct.pack("<I", 3) + b"abc\x00" + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    )
    length = len(data) if size is None else size
    chunks += b"data" + struct.pack("<I", length) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)


def read(path: Path) -> np.ndarray[Any, Any]:
    return np.concatenate(list(open_audio(path)()))


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("kind", ["i8", "i16", "i24", "i32", "f32", "f64"])
def test_kinds_of_samples(tmp_path: Path, kind: str, extensible: bool) -> None:
    samples = tone(16000, 0.1)
    write_wav(tmp_path / "a.wav", samples, 16000, kind, extensible=extensible)
    bound = 1 / 100 if kind == "i8" else 1e-4
    np.testing.assert_allclose(read(tmp_path / "a.wav"), samples, atol=bound)


def test_what_the_standard_library_writes(tmp_path: Path) -> None:
    samples = (tone(16000, 0.2) * 32767).astype("<i2")
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    np.testing.assert_allclose(read(tmp_path / "a.wav"), samples / 32768, atol=1e-7)


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_rates_and_channels(tmp_path: Path, rate: int, channels: int) -> None:
    """The same tone is read at 16 kHz as the mean of the channels, in blocks or at once."""
    samples = tone(rate, 3.0)
    loud = np.arange(1, channels + 1) * 2 / (channels + 1)  # of mean 1
    write_wav(tmp_path / "a.wav", samples[:, None] * loud * 0.5, rate, "f32")
    found = read(tmp_path / "a.wav")
    wanted = tone(16000, 3.0) * 0.5
    assert len(found) == len(wanted)
    np.testing.assert_allclose(found[500:-500], wanted[500:-500], atol=2e-4)


def test_what_16_khz_cannot_hold_is_taken_out(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", tone(48000, 0.5, hertz=9500), 48000, "f32")
    assert np.abs(read(tmp_path / "a.wav")[500:-500]).max() < 1e-3


def test_arrays() -> None:
    samples = tone(16000, 0.1)
    for given in (samples, np.stack([samples, samples], 1), samples.astype(np.float32)):
        (block,) = open_audio(given)()
        np.testing.assert_allclose(block, samples, atol=1e-6)
    (block,) = open_audio((samples * 32767).astype(np.int16))()
    np.testing.assert_allclose(block, samples, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros(0), "at least one sample"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros(5, bool), "dtype bool"),
        (np.array([0.0, np.nan]), "not finite numbers"),
    ],
)
def test_arrays_that_are_no_audio(given: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_audio(given)


def test_file_of_unknown_length(tmp_path: Path) -> None:
    """ffmpeg writes such a file to a pipe."""
    write_wav(tmp_path / "a.wav", tone(16000, 0.1), 16000, size=0xFFFFFFFF)
    assert len(read(tmp_path / "a.wav")) == 1600


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda raw: b"", FormatError, "the file is empty"),
        (lambda raw: raw[:20], FormatError, "no fmt chunk"),
        (lambda raw: raw[:40], FormatError, "is cut after"),
        (lambda raw: raw[:-1000], FormatError, r"says 0.1 s of audio, but it has 0.1 s"),
        (lambda raw: raw.replace(b"data", b"dada"), FormatError, "no data chunk"),
        (lambda raw: raw.replace(b"fmt ", b"fmd "), FormatError, "no fmt chunk before"),
        (lambda raw: raw[:32] + b"\x07" + raw[33:], UnsupportedError, "WAV of format 7 with 16"),
        (lambda raw: raw[:36] + bytes(4) + raw[40:], FormatError, "0 samples a second"),
        (lambda raw: raw[:34] + bytes(2) + raw[36:], FormatError, "no fmt chunk"),
    ],
)
def test_damaged_files(
    tmp_path: Path, change: Any, error: type[TrinityError], message: str
) -> None:
    path = tmp_path / "a.wav"
    write_wav(path, tone(16000, 0.1), 16000)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(error, match=message) as found:
        read(path)
    assert str(path) in str(found.value)


@pytest.mark.filterwarnings("error")
def test_samples_that_are_no_numbers(tmp_path: Path) -> None:
    for samples in (np.full(100, np.inf), np.array([[np.inf, -np.inf], [3e38, 3e38]] * 50)):
        write_wav(tmp_path / "a.wav", samples, 16000, "f32")
        with pytest.raises(FormatError, match="not finite numbers"):
            read(tmp_path / "a.wav")


def test_other_files_need_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.mp3"
    path.write_bytes(b"ID3" + bytes(100))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UnsupportedError, match=r"not a WAV file; .* pip install soundfile"):
        read(path)
    with pytest.raises(InputError, match=r"cannot be read \(No such file.*give an audio file"):
        open_audio(tmp_path / "missing.wav")


@pytest.mark.parametrize(
    ("name", "kind", "subtype", "rate", "close"),
    [
        ("a.flac", "FLAC", "PCM_16", 22050, 1e-4),
        ("a.ogg", "OGG", "VORBIS", 44100, 0.03),
        ("a.opus", "OGG", "OPUS", 48000, 0.03),
        ("a.mp3", "MP3", "MPEG_LAYER_III", 16000, 0.03),
        ("no_suffix", "FLAC", "PCM_24", 8000, 1e-4),
    ],
)
def test_other_containers_have_the_same_samples(
    tmp_path: Path, name: str, kind: str, subtype: str, rate: int, close: float
) -> None:
    """FLAC, Ogg and MP3 files with any name have the samples of the WAV file."""
    soundfile = pytest.importorskip("soundfile")
    samples = np.stack([tone(rate, 1.0), tone(rate, 1.0)], 1)
    soundfile.write(tmp_path / name, samples, rate, format=kind, subtype=subtype)
    write_wav(tmp_path / "a.wav", samples, rate)
    found, wanted = read(tmp_path / name), read(tmp_path / "a.wav")
    assert abs(len(found) - len(wanted)) <= 16000 * 0.15  # an MP3 is padded to whole frames
    inside = slice(2000, 14000)
    gain = np.abs(np.fft.rfft(found[inside])).max() / np.abs(np.fft.rfft(wanted[inside])).max()
    assert gain == pytest.approx(1, abs=close)
    assert np.abs(np.fft.rfft(found[inside])).argmax() == 330  # 440 Hz in 0.75 s


def write_by_av(
    path: Path, samples: np.ndarray[Any, Any], rate: int, form: str, codec: str
) -> None:
    """A file of samples (n,) that FFmpeg encodes."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(
            samples[None].astype(np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate = rate
        container.mux([*stream.encode(frame), *stream.encode(None)])


@pytest.mark.parametrize(
    ("name", "form", "codec", "rate", "close"),
    [
        ("a.m4a", "mp4", "aac", 44100, 0.03),
        ("a.mp4", "mp4", "alac", 16000, 1e-3),
        ("a.webm", "webm", "libopus", 48000, 0.03),
        ("a.aac", "adts", "aac", 22050, 0.03),
        ("no_suffix", "mov", "pcm_s16le", 8000, 1e-3),
    ],
)
def test_what_phones_and_browsers_record(
    tmp_path: Path, name: str, form: str, codec: str, rate: int, close: float
) -> None:
    """The samples of the WAV file, also of a file that is longer than a reply."""
    samples = tone(rate, 3.0)
    write_by_av(tmp_path / name, samples, rate, form, codec)
    write_wav(tmp_path / "a.wav", samples, rate)
    found, wanted = read(tmp_path / name), read(tmp_path / "a.wav")
    assert abs(len(found) - len(wanted)) <= 16000 * 0.15
    inside = slice(8000, 40000)
    gain = np.abs(np.fft.rfft(found[inside])).max() / np.abs(np.fft.rfft(wanted[inside])).max()
    assert gain == pytest.approx(1, abs=close)
    assert np.abs(np.fft.rfft(found[inside])).argmax() == 880  # 440 Hz in 2 s


@pytest.mark.full
def test_a_recording_of_several_replies(tmp_path: Path) -> None:
    samples = np.repeat(np.linspace(-0.5, 0.5, 100), 24000)
    write_by_av(tmp_path / "a.m4a", samples, 16000, "mp4", "alac")
    write_wav(tmp_path / "a.wav", samples, 16000)
    found, wanted = read(tmp_path / "a.m4a"), read(tmp_path / "a.wav")
    np.testing.assert_allclose(found[: len(wanted)], wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "a.m4a: (it is damaged or incomplete|truncated)"),
        (lambda raw: raw[:12] + bytes(500), "a.m4a: it is damaged or incomplete"),
        (lambda raw: raw[:12], "a.m4a: it is damaged or incomplete"),
        (lambda raw: b"\x1a\x45\xdf\xa3" + raw, "a.m4a: it is damaged or incomplete"),
    ],
)
def test_damaged_recordings(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "a.m4a"
    write_by_av(path, tone(16000, 5.0), 16000, "mp4", "aac")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FormatError, match=message):
        read(path)


def test_a_video_without_sound(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        container.mux([*stream.encode(frame), *stream.encode(None)])
    with pytest.raises(FormatError, match="it has no sound"):
        read(tmp_path / "a.mp4")


def test_recordings_of_phones_need_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.m4a"
    path.write_bytes(b"\0\0\0\x18ftypM4A " + bytes(100))
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnsupportedError, match=r"M4A, AAC and WebM need av, .* pip install av"):
        read(path)


def test_a_header_that_promises_an_hour_gives_what_is_there(tmp_path: Path) -> None:
    """The Xing header of an MP3 file counts its frames; soundfile's ``blocks`` trusts it."""
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "a.mp3"
    soundfile.write(path, tone(16000, 1.0), 16000, format="MP3", subtype="MPEG_LAYER_III")
    wanted = read(path)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"Xing") + 8
    raw[at : at + 4] = (100_000).to_bytes(4, "big")
    path.write_bytes(raw)
    found = read(path)
    assert abs(len(found) - len(wanted)) <= 2 * 1152  # a frame at each end
    np.testing.assert_allclose(found[2000:14000], wanted[2000:14000], atol=1e-3)


def test_samples_of_other_containers_that_are_no_numbers(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "a.w64"
    samples = np.array([0.1, np.nan, 0.1, np.inf] * 100, np.float32)
    soundfile.write(path, samples, 16000, format="W64", subtype="FLOAT")
    with pytest.raises(FormatError, match="not finite numbers"):
        read(path)


def test_windows_of_a_long_audio_are_those_of_the_whole() -> None:
    """Windows that are read in blocks, from any frame, have the frames of the whole spectrum."""
    samples = np.random.default_rng(0).normal(size=16000 * 7).astype(np.float32)
    samples[:40000] *= 1e-6  # a part that the loudest lifts
    whole = np.zeros((800, 20), np.float32)
    whole[:700] = Clip(lambda: iter([samples]), 20, 700).features(0)
    clip = Clip(lambda: iter(np.array_split(samples, 13)), 20, 100)
    assert (clip.frames, clip.samples, clip.seconds) == (700, 112000, 7.0)
    for first in (0, 0, 37, 200, 555, 640):
        np.testing.assert_allclose(clip.features(first), whole[first : first + 100], atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("count", [1500, 1599, 1600, 1601, 1700, 1760, 1920, 5000])
def test_silence_follows_the_audio(count: int) -> None:
    """As openai/whisper: log_mel_spectrogram(audio, padding=N_SAMPLES), then pad_or_trim.

    The spectrum is mirrored at the beginning and goes on into silence at the end; of a window,
    the frames after the end are 0. A window that detects a language has frames of silence there.
    """
    samples = np.random.default_rng(0).normal(size=count).astype(np.float32)
    samples *= np.linspace(0.1, 1, count, dtype=np.float32) ** 4  # the loudest is at the end
    mirrored = np.pad(np.pad(samples, (0, 3200)), (200, 0), "reflect")
    log = log_mel(np.pad(mirrored, (0, 200)), 20)
    silent = scaled(log, log.max())
    wanted = silent.copy()
    wanted[count // 160 :] = 0
    for silence, frames in ((False, wanted), (True, silent)):
        clip = Clip(lambda: iter(np.array_split(samples, 7)), 20, 10)
        assert clip.frames == count // 160
        for first in (0, 1, 6, count // 160 - 1):
            found = clip.features(first, silence)
            np.testing.assert_allclose(found, frames[first : first + 10], atol=1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("count", [1, 100, 200, 201, 300])
def test_shortest_audio(count: int) -> None:
    """Less than half a frame, which is mirrored together with the silence after it."""
    samples = np.random.default_rng(0).normal(size=count).astype(np.float32)
    short = Clip(lambda: iter([samples]), 20, 10)
    assert short.frames == 1
    longer = np.concatenate([samples, np.zeros(1000, np.float32)])
    padded = Clip(lambda: iter([longer]), 20, 10).features(0, silence=True)
    np.testing.assert_allclose(short.features(0, silence=True), padded, atol=1e-6)
    np.testing.assert_allclose(short.features(0)[:1], padded[:1], atol=1e-6)
    assert not short.features(0)[1:].any()


def test_no_samples() -> None:
    with pytest.raises(FormatError, match="no samples"):
        Clip(lambda: iter([]), 20, 10)


def test_filters_have_the_areas_of_slaney() -> None:
    """Each triangle has area 1 over its hertz; the first bands are 200/3 Hz apart or more."""
    filters = mel_filters(40)
    assert filters.shape == (40, 201)
    centres = filters.argmax(1) * 40.0
    assert (np.diff(centres) > 0).all()
    np.testing.assert_allclose(filters.sum(1)[10:] * 40, 1, atol=0.05)
