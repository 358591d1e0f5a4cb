"""Write what transformers and faster-whisper transcribe from the clips of tests/data/real/spoken.

    python tests/goldens/whisper_goldens.py --ctranslate2 FOLDER --huggingface FOLDER

Needs faster-whisper, transformers, torch and soundfile. The two folders have one model in both
formats (scripts/models/whisper_from_ctranslate2.py). Both libraries are told the language, and
compute in float32 with no draws: greedy, and faster-whisper also with its default of 5 beams.
"detected" is the language that transformers finds by itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "real" / "spoken"
RATE = 16000
FASTER_WHISPER = {"faster_whisper": 1, "faster_whisper_5_beams": 5}
Audio = NDArray[np.float32]


def clips() -> Iterator[tuple[str, Audio, str]]:
    for path in sorted(FOLDER.glob("*.opus")):
        samples, rate = soundfile.read(path, dtype="float32")
        assert rate == RATE, path
        yield path.stem, samples, path.stem[:2]


def rounded(text: str, start: float, end: float) -> dict[str, Any]:
    return {"start": round(float(start), 2), "end": round(float(end), 2), "text": text.strip()}


def by_faster_whisper(folder: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    from faster_whisper import WhisperModel

    model = WhisperModel(folder, device="cpu", compute_type="float32", cpu_threads=2)
    for name, samples, language in clips():
        for library, beams in FASTER_WHISPER.items():
            segments, _ = model.transcribe(
                samples,
                beam_size=beams,
                condition_on_previous_text=False,
                temperature=0.0,
                language=language,
            )
            found = [rounded(one.text, one.start, one.end) for one in segments]
            yield library, name, {"segments": found}


def by_transformers(folder: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    torch.set_num_threads(2)
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    processor = WhisperProcessor.from_pretrained(folder)
    names = {one: code.strip("<|>") for code, one in model.generation_config.lang_to_id.items()}
    for name, samples, language in clips():
        whole = len(samples) > 30 * RATE
        inputs = processor(
            samples, sampling_rate=RATE, return_tensors="pt", truncation=not whole,
            padding="longest" if whole else "max_length", return_attention_mask=True,
        )  # fmt: skip
        with torch.no_grad():
            detected = model.detect_language(inputs.input_features[..., :3000])
            made = model.generate(
                **inputs, return_timestamps=True, return_segments=True, do_sample=False,
                language=language, task="transcribe",
            )  # fmt: skip
        found = [
            rounded(
                processor.decode(one["tokens"], skip_special_tokens=True), one["start"], one["end"]
            )
            for one in made["segments"][0]
        ]
        yield "transformers", name, {"detected": names[int(detected[0])], "segments": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--ctranslate2", required=True, metavar="FOLDER")
    parser.add_argument("--huggingface", required=True, metavar="FOLDER")
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for make, folder in (
        (by_faster_whisper, given.ctranslate2),
        (by_transformers, given.huggingface),
    ):
        for library, name, heard in make(folder):
            found.setdefault(library, {})[name] = heard
            print(library, name, [one["text"] for one in heard["segments"]])
    text = json.dumps(found, ensure_ascii=False, indent=1)
    (FOLDER / "references.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
