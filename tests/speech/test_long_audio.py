"""Hours of audio: a file that is mostly a hole, and a model so small that its windows are quick."""

from __future__ import annotations

import json
import shutil
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.speech.small_whisper import write_model

HOURS, RATE = 3, 16000


def sparse_wav(path: Path, seconds: int) -> None:
    """A recording that is silent but for noise in the first and the last second."""
    size = 2 * RATE * seconds
    noise = np.random.default_rng(0).integers(-9000, 9000, RATE, "<i2").tobytes()
    head = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    head += b"data" + struct.pack("<I", size)
    with path.open("wb") as file:
        file.write(b"RIFF" + struct.pack("<I", 4 + len(head) + size) + b"WAVE" + head)
        begin = file.tell()
        file.write(noise)
        file.seek(begin + size - len(noise))
        file.write(noise)


def quick_model(folder: Path, source: Path) -> None:
    """Windows of 30 s, a layer of 16 values on each side, texts of some tokens."""
    shutil.copytree(source, folder)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    sizes = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kept = ("vocab_size", "num_mel_bins", "max_source_positions", "decoder_start_token_id")
    write_model(
        folder, "F32", **{key: sizes[key] for key in kept}, d_model=16, encoder_layers=1,
        encoder_attention_heads=2, encoder_ffn_dim=16, decoder_layers=1,
        decoder_attention_heads=2, decoder_ffn_dim=16, max_target_positions=16,
        eos_token_id=sizes["eos_token_id"],
    )  # fmt: skip


def test_three_hours(tmp_path: Path, shared_data: Path) -> None:
    """In the memory of a window: the file alone has 346 MB, its samples as floats 691 MB."""
    source = shared_data / "encoders" / "whisper" / "hf"
    quick_model(tmp_path / "model", source)
    path = tmp_path / "long.wav"
    sparse_wav(path, 3600 * HOURS)
    assert path.stat().st_size > 2 * RATE * 3600 * HOURS
    if path.stat().st_blocks * 512 > 50e6:
        pytest.skip("this file system keeps no holes")
    with trinity.SpeechModel(tmp_path / "model", threads=2) as model:
        model.transcribe(np.zeros(RATE), language="en", fallback=False)
        began = time.perf_counter()
        tracemalloc.start()
        found = model.transcribe(path, language="en", fallback=False)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    print(time.perf_counter() - began, peak, len(found.segments))
    assert (found.duration, found.complete) == (3600.0 * HOURS, True)
    starts = [one.start for one in found.segments]
    assert starts == sorted(starts)
    assert len(starts) >= 10
    assert starts[-1] > 3600 * HOURS - 30
    assert all(0 <= one.start < one.end <= found.duration for one in found.segments)
    assert peak < 60e6
