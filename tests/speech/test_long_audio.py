"""Long audio: a sparse file, and a tiny model whose windows are fast."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.matrix import some
from tests.speech.small_whisper import write_model

RATE = 16000


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
        folder, "F32", **{key: sizes[key] for key in kept}, d_model=8, encoder_layers=1,
        encoder_attention_heads=1, encoder_ffn_dim=16, decoder_layers=1,
        decoder_attention_heads=1, decoder_ffn_dim=16, max_target_positions=16,
        eos_token_id=sizes["eos_token_id"],
    )  # fmt: skip
    path = folder / "generation_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    beyond_text = list(range(sizes["eos_token_id"], sizes["vocab_size"]))
    values |= {"suppress_tokens": beyond_text, "alignment_heads": [[0, 0]]}
    path.write_text(json.dumps(values), encoding="utf-8")


RUN = """
import json, resource, sys
import numpy as np
import trinity
options = {"language": "en", "fallback": False, "times": False, "beams": 1}
with trinity.SpeechModel(sys.argv[1], threads=1) as model:
    model.transcribe(np.ones(16000), **options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = model.transcribe(sys.argv[2], **options)
    memory = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
pieces = [(one.start, one.end) for one in found.segments]
print(json.dumps([found.duration, found.complete, memory, pieces]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's ru_maxrss, in kB")
@pytest.mark.parametrize("minutes", some([20, 180], (), [20]))
def test_memory_is_that_of_a_window(tmp_path: Path, shared_data: Path, minutes: int) -> None:
    """Three hours: the file has 346 MB, its samples as floats 691 MB, its features 346 MB."""
    quick_model(tmp_path / "model", shared_data / "encoders" / "whisper" / "hf")
    path = tmp_path / "long.wav"
    sparse_wav(path, 60 * minutes)
    if path.stat().st_blocks * 512 > 10e6:
        pytest.skip("this file system keeps no holes")
    ended = subprocess.run(
        [sys.executable, "-c", RUN, tmp_path / "model", path],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    duration, complete, memory, pieces = json.loads(ended.stdout)
    assert (duration, complete) == (60.0 * minutes, True)
    # Each window has some text, though the model's weights are random.
    assert pieces == [[30.0 * i, 30.0 * (i + 1)] for i in range(2 * minutes)]
    assert memory < 30e6
