"""Write tests/data/real/NAME_vectors.npz: embeddings that sentence-transformers computes.

    python tests/goldens/embedding_goldens.py minilm embeddinggemma

Needs sentence-transformers and nothing of this project but its scripts. The models are those of
scripts/models/real_models.py, as they are installed. Writes tests/data/real/NAME_vectors.npz:
float32 ``vectors`` (texts, dimensions) of the texts of embedding_texts.py without a prompt,
``query`` and ``document`` those of every tenth with these prompts where the model has them, and
``versions``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.models import real_models  # noqa: E402
from tests.real.embedding_texts import PROMPTED, texts  # noqa: E402


def main(names: list[str]) -> None:
    """Write the embeddings of the named models."""
    import sentence_transformers  # type: ignore[import-not-found,unused-ignore]

    for name in names:
        model = sentence_transformers.SentenceTransformer(
            str(real_models.path_of(name)), device="cpu", model_kwargs={"dtype": "float32"}
        )
        found: dict[str, Any] = {"vectors": model.encode(texts(), batch_size=8)}
        for prompt in ("query", "document"):
            if model.prompts.get(prompt):
                found[prompt] = model.encode(texts()[::10], prompt_name=prompt, batch_size=8)
                assert len(found[prompt]) == PROMPTED
        found["versions"] = f"sentence-transformers {sentence_transformers.__version__}"
        target = ROOT / "tests/data/real" / f"{name}_vectors.npz"
        target.parent.mkdir(exist_ok=True)
        np.savez_compressed(target, **found)
        print(target, {key: np.shape(value) for key, value in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
