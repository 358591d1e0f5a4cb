"""Classifiers of texts, compared with transformers' pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.formats.huggingface.rank_models import CLASSIFIERS, LABELS, PAIRS, write
from tests.providers.encoder_directories import encoder_directory
from trinity.errors import ContextLengthError, InputError
from trinity.tools.convert import convert

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "ranks.json").read_text("utf-8"))
TEXTS = [text for _, text in PAIRS]


@pytest.mark.parametrize("form", ["directory", "gguf"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_probabilities(name: str, form: str, tmp_path: Path) -> None:
    path, golden = write(name, tmp_path / "model"), GOLDEN[name]
    if form == "gguf":
        convert(path, tmp_path / "model.gguf", outtype="f32")
        path = tmp_path / "model.gguf"
    with trinity.load(path, threads=1, kv_type="f32") as model:
        assert model.embedder.labels == LABELS
        assert not model.ranks
        assert model.embedder.read_classified(TEXTS).rows == golden["ids"]
        found = model.embedder.classify(TEXTS)
        assert np.abs(found - np.array(golden["probabilities"])).max() < 1e-5
        assert np.array_equal(model.embedder.classify(golden["ids"]), found)
        assert model.embedder.classify([]).shape == (0, 3)
        with pytest.raises(InputError, match="text 1 is empty"):
            model.embedder.classify(["a", ""])
        with pytest.raises(ContextLengthError, match="text 0 has"):
            model.embedder.classify(["long " * 300], truncate=False)


def test_an_encoders_classifier(shared_data: Path, tmp_path: Path) -> None:
    """Logits are classifier(tanh(pooler(h))); h are the golden states of the first token."""
    rng = np.random.default_rng(5)
    more = {
        "bert.pooler.dense.weight": rng.normal(size=(64, 64)).astype("f4"),
        "bert.pooler.dense.bias": rng.normal(size=64).astype("f4"),
        "classifier.weight": rng.normal(size=(3, 64)).astype("f4"),
        "classifier.bias": rng.normal(size=3).astype("f4"),
    }
    folder = shared_data / "encoders/bert_cls"
    path = encoder_directory(
        shared_data / "encoders", "bert_cls", tmp_path, prefix="bert.", more=more,
        architectures=["BertForSequenceClassification"], id2label={"0": "a", "1": "b", "2": 3},
    )  # fmt: skip
    texts = json.loads((folder / "golden.json").read_text())["texts"]
    with trinity.load(path, threads=1) as model:
        assert model.embedder.labels == ("a", "b", "LABEL_2")
        found = model.embedder.classify([one["text"] for one in texts])
    for number, row in enumerate(found):
        hidden = np.load(folder / f"hidden_{number}.npy").reshape(-1, 64)
        pooler = more["bert.pooler.dense.weight"] @ hidden[0] + more["bert.pooler.dense.bias"]
        logits = more["classifier.weight"] @ np.tanh(pooler) + more["classifier.bias"]
        expected = np.exp(logits - logits.max())
        assert np.abs(row - expected / expected.sum()).max() < 1e-5


def test_other_models_are_no_classifiers(shared_data: Path) -> None:
    with trinity.load(shared_data / "encoders/bert_cls/model.gguf", threads=1) as model:
        assert model.embedder.labels == ()
        with pytest.raises(InputError, match="not a classifier"):
            model.embedder.classify(["a"])
