"""The training script writes what trinity reads: tokens, tensors, likelihoods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "training"
TEXT = "It was the best of times, it was the worst of times;\nthe 2 cities' age. " * 40


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """The scripts' modules, which import each other as scripts do."""
    pytest.importorskip("torch", reason="needs the extra `train`")
    monkeypatch.syspath_prepend(SCRIPTS)
    import demo_network
    import export_demo
    import train_demo

    return demo_network, export_demo, train_demo


def test_a_written_model_computes_what_pytorch_does(
    modules: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    import torch

    network, export, train = modules
    tokenizer = train.train_tokenizer(TEXT, 300)
    recipe = network.Recipe(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=128, num_layers=2, num_heads=2,
        num_kv_heads=1, intermediate_size=256, context=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = export.as_written(network.BitNet(recipe))
    bos = tokenizer.token_to_id(train.BOS)
    path = tmp_path / "model.gguf"
    export.write_gguf(path, model, tokenizer, bos)
    tokens = torch.tensor([bos, *tokenizer.encode(TEXT).ids])
    expected = export.window_nlls(model, tokens, 64, bos).numpy()
    with trinity.load(path, threads=1, kv_type="f32") as loaded:
        assert loaded.tokenize(TEXT) == tokens.tolist()
        found = loaded.perplexity(TEXT, window=64)
    assert found.scored_tokens == len(expected)
    assert found.perplexity == pytest.approx(np.exp(expected.mean()), rel=1e-3)


def test_bits_score_every_token_once(modules: tuple[Any, Any, Any]) -> None:
    """A model with equal probabilities needs log2(vocabulary) bits for each token."""
    import torch

    network, _, _ = modules

    class Uniform(torch.nn.Linear):
        def forward(self, tokens: Any, dtype: Any) -> Any:
            assert tokens.shape[1] <= 16
            assert tokens[0, 0] == 7
            return torch.zeros(*tokens.shape, 32)

    for count in (1, 7, 8, 9, 64, 65):
        tokens = torch.arange(count) % 32
        bits = network.bits(Uniform(1, 1), tokens, 7, 16, torch.float32)
        assert bits == pytest.approx(5 * count)


def test_one_pass_gives_every_window_once(modules: tuple[Any, Any, Any]) -> None:
    import torch

    network, _, train = modules
    recipe = network.Recipe(context=32, batch=64, steps=100, lengthen=1.0)
    tokens = torch.arange(16 * 22)
    seen = [row for step in range(5) for row in train.batch_at(tokens, recipe, step, bos=-1)]
    assert len(seen) == 20
    starts = sorted(int(row[1]) for row in seen)
    assert len({start % 16 for start in starts}) == 1
    assert len(set(starts)) == len(starts)
    assert all(row[0] == -1 and len(row) == 17 for row in seen)
