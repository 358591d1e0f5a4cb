"""The golden models of tests/data/hf: a copy to convert, and transformers' results.

tests/goldens/make_goldens.py writes them.
"""

from __future__ import annotations

import json
import lzma
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parents[1] / "data" / "hf"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@dataclass(frozen=True)
class Golden:
    """``logits`` (tokens, vocabulary) after each of ``tokens``; ``text_ids`` have BOS."""

    tokens: list[int]
    logits: NDArray[np.float32]
    text: str
    text_ids: list[int]


def golden(name: str) -> Golden:
    with np.load(FOLDER / name / "golden.npz") as arrays:
        return Golden(
            arrays["tokens"].tolist(),
            arrays["logits"],
            str(arrays["text"]),
            arrays["text_ids"].tolist(),
        )


def model_directory(name: str, parent: Path) -> Path:
    """A copy as a model's page would give it, to convert or to spoil."""
    directory = parent / name
    shutil.copytree(FOLDER / name, directory)
    (directory / "golden.npz").unlink()
    packed = directory / "model.safetensors.xz"
    if packed.exists():
        (directory / "model.safetensors").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()
    return directory


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; None removes one."""
    values = json.loads(path.read_text("utf-8")) | changes
    kept = {key: value for key, value in values.items() if value is not None}
    path.write_text(json.dumps(kept), "utf-8")
