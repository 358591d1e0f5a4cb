"""Resampling compared with a formula; hostile headers have bounded time and memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.processor_time import within
from trinity.errors import FormatError, InputError
from trinity.speech.audio import open_audio
from trinity.speech.resampling import RATE, Resampler
from trinity.speech.wav import MOST_CHANNELS

COMMON = [8000, 11025, 12000, 22050, 24000, 32000, 44100, 48000, 96000, 192000]
# No common divisor with 16,000, or at the limits.
ODD = [1000, 1001, 15999, 16001, 44101, 383999, 767999, 768000]


def tones(times: NDArray[np.float64], rate: int) -> NDArray[np.float64]:
    """20 tones that both rates hold, at any times in seconds."""
    draws = np.random.default_rng(rate)
    hertz = draws.uniform(20, 0.8 * min(rate, RATE) / 2, 20)[:, None]
    phases = draws.uniform(0, 2 * np.pi, (20, 1))
    found: NDArray[np.float64] = np.sin(2 * np.pi * hertz * times + phases).mean(0)
    return found


def resampled(samples: NDArray[np.float32], rate: int, blocks: int) -> NDArray[np.float32]:
    one = Resampler(rate)
    parts = [one.push(block) for block in np.array_split(samples, blocks)]
    return np.concatenate([*parts, one.finish()])


@pytest.mark.parametrize("rate", COMMON + ODD)
def test_outputs_are_the_signal_at_their_times(rate: int) -> None:
    samples = tones(np.arange(rate) / rate, rate).astype(np.float32)
    found = resampled(samples, rate, 7)
    assert len(found) == RATE
    wanted = tones(np.arange(RATE) / RATE, rate)
    inside = slice(RATE // 20, -RATE // 20)
    np.testing.assert_allclose(found[inside], wanted[inside], atol=1e-4)
    np.testing.assert_allclose(found, resampled(samples, rate, 1), atol=1e-6)


@pytest.mark.parametrize("rate", [rate for rate in COMMON + ODD if rate > 20000])
def test_tones_that_the_output_cannot_hold_are_removed(rate: int) -> None:
    samples = np.sin(2 * np.pi * 9000 * np.arange(rate) / rate).astype(np.float32)
    assert np.abs(resampled(samples, rate, 3)[1000:-1000]).max() < 2e-4


def wav(path: Path, rate: int, channels: int, samples: int, size: int | None = None) -> None:
    """A WAV file of 16 bits that has ``samples`` values, whatever its header says."""
    data = np.zeros(samples, "<i2").tobytes()
    length = len(data) if size is None else size
    frame = channels * 2
    fields = (1, channels, rate, rate * frame & 0xFFFFFFFF, frame & 0xFFFF, 16)
    header = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16)
    header += struct.pack("<HHIIHH", *fields) + b"data" + struct.pack("<I", length)
    path.write_bytes(header + data)


@pytest.mark.parametrize("rate", ODD)
def test_a_small_file_of_any_rate_takes_little_time_and_memory(tmp_path: Path, rate: int) -> None:
    """244 bytes with an odd rate took 10.7 s and 1.8 GB."""
    wav(tmp_path / "a.wav", rate, 1, 100)
    assert (tmp_path / "a.wav").stat().st_size == 244
    tracemalloc.start()
    try:
        count = within(1.0, lambda: sum(map(len, open_audio(tmp_path / "a.wav")())))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == -(-100 * RATE // rate)
    assert peak < 10e6


@pytest.mark.few(1)
@pytest.mark.parametrize("rate", [44101, 767999, 768000])
def test_memory_does_not_grow_with_the_length_of_a_file(tmp_path: Path, rate: int) -> None:
    wav(tmp_path / "a.wav", rate, 1, 3_000_000)
    tracemalloc.start()
    try:
        for block in open_audio(tmp_path / "a.wav")():
            assert not block.any()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6


def test_a_header_that_promises_much_takes_the_memory_of_the_file(tmp_path: Path) -> None:
    wav(tmp_path / "a.wav", 48000, MOST_CHANNELS, 6400, size=0xFFFFFFFF)
    tracemalloc.start()
    try:
        assert sum(len(block) for block in open_audio(tmp_path / "a.wav")()) == -(-100 // 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize("channels", [MOST_CHANNELS + 1, 65535])
def test_more_channels_than_recordings_have_are_an_error(tmp_path: Path, channels: int) -> None:
    wav(tmp_path / "a.wav", 16000, channels, 65535, size=0xFFFFFFFF)
    with pytest.raises(FormatError, match=f"a.wav: {channels} channels; expected 1 to 64"):
        open_audio(tmp_path / "a.wav")
    with pytest.raises(InputError, match=f"the audio has {channels} channels"):
        open_audio(np.zeros((2, channels), np.float32))


@pytest.mark.parametrize("rate", [1, 999, 768001, 2**31 - 1])
def test_rates_that_recordings_do_not_have_are_an_error(tmp_path: Path, rate: int) -> None:
    wav(tmp_path / "a.wav", rate, 1, 100)
    with pytest.raises(FormatError, match=f"{rate} samples a second; expected 1000 to 768000"):
        open_audio(tmp_path / "a.wav")


@pytest.mark.parametrize(("rate", "channels"), [(500, 1), (800000, 1), (16000, 65)])
def test_limits_of_files_that_soundfile_reads(tmp_path: Path, rate: int, channels: int) -> None:
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "a.aiff"
    soundfile.write(path, np.zeros((10, channels)), rate, format="AIFF", subtype="PCM_16")
    with pytest.raises(FormatError, match=r"samples a second; expected|65 channels; expected"):
        list(open_audio(path)())
