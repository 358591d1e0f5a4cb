"""Make the clips of tests/data/real/spoken from texts.json with espeak-ng, as Ogg Opus.

    python tests/goldens/spoken_clips.py

Needs espeak-ng (Debian's package; the clips there were made with 1.51) and soundfile.
"""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import soundfile

from trinity.speech.resampling import RATE, Resampler

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "real" / "spoken"
WORDS_A_MINUTE = "150"
PEAK = 0.5  # below 1, so that the codec does not clip


def main() -> None:
    for one in json.loads((FOLDER / "texts.json").read_text(encoding="utf-8")):
        command = ["espeak-ng", "-v", one["voice"], "-s", WORDS_A_MINUTE, "--stdout", one["text"]]
        spoken = subprocess.run(command, check=True, capture_output=True).stdout
        samples, rate = soundfile.read(io.BytesIO(spoken), dtype="float32")
        resampler = Resampler(rate)
        whole = np.concatenate([resampler.push(samples), resampler.finish()])
        whole *= PEAK / np.abs(whole).max()
        path = FOLDER / f"{one['name']}.opus"
        soundfile.write(path, whole, RATE, format="OGG", subtype="OPUS", compression_level=0.9)
        print(f"{path.name}: {len(whole) / RATE:.1f} s, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
