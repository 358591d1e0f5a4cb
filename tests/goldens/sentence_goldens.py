"""Write tests/data/sentence_transformers.npz: embeddings of small directories.

    python tests/goldens/sentence_goldens.py make build/sentences
    refs/bin/python tests/goldens/sentence_goldens.py encode build/sentences

The first command needs this project and the reference data and writes the directories of
tests/providers/sentence_directories.py; the second needs sentence-transformers and writes
tests/data/sentence_transformers.npz: float32 vectors (texts, dimensions) by the variant's name, and
those with the prompt "document" where it has prompts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests/data/sentence_transformers.npz"


def make(folder: Path) -> None:
    """Write the directories, and the texts."""
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
    from tests.conftest import SHARED_DATA
    from tests.providers.sentence_directories import TEXTS, VARIANTS, sentence_directory

    folder.mkdir(parents=True)
    for name in VARIANTS:
        sentence_directory(SHARED_DATA / "encoders", name, folder)
    (folder / "texts.json").write_text(json.dumps(TEXTS))


def encode(folder: Path) -> None:
    """Write the embeddings."""
    import sentence_transformers  # type: ignore[import-not-found,unused-ignore]

    texts, found = json.loads((folder / "texts.json").read_text()), {}
    for path in sorted(folder.glob("*/bert_mean")):
        model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
        name = path.parent.name
        found[name] = model.encode(texts)
        if model.prompts.get("document"):
            found[f"{name}/document"] = model.encode(texts, prompt_name="document")
    np.savez_compressed(TARGET, **found)
    print({name: vectors.shape for name, vectors in found.items()})


if __name__ == "__main__":
    {"make": make, "encode": encode}[sys.argv[1]](Path(sys.argv[2]))
