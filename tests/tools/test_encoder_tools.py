"""Commands with encoders: bench, imatrix and quantize work; text generation is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from trinity.errors import InputError
from trinity.formats.imatrix import write_imatrix
from trinity.model import Model
from trinity.quantization import quantize
from trinity.tools.bench import Plan, run_bench
from trinity.tools.bench_report import Measured, markdown
from trinity.tools.imatrix import ImatrixProgress, gather_imatrix

KINDS = ("bert_mean", "nomic_bert", "xlm_roberta_rerank", "gemma_embedding")
TEXT = "The quick brown fox jumps over the lazy dog. " * 12


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, shared_data: Path) -> str:
    return str(shared_data / "encoders" / request.param / "model.gguf")


def load(path: str, **options: Any) -> Model:
    return trinity.load(path, threads=2, **options)


def test_bench_counts_whole_texts(path: str) -> None:
    with load(path, context_length=64) as model:
        engine: Any = model.engine
        steps: list[list[int]] = []
        evaluate = engine.step

        def step(rows: Any, **more: Any) -> Any:
            steps.append([len(piece.tokens) for piece in rows])
            return evaluate(rows, **more)

        engine.step = step
        report = run_bench(engine, Plan((24,), (5,), (1, 3), rounds=1))
        profiles = run_bench(engine, Plan((24,), (), (3,), rounds=1, profile=True)).profiles
    one, three = report.measurements
    assert [one.test, three.test] == ["text24", "text24 b3"]
    assert steps[:6] == [[24], [24], *[[24, 24], [24]] * 2]  # 64 rows hold two
    assert three.tokens == 72
    assert three.texts_per_second == pytest.approx(3 / three.seconds[0])
    assert {op.rows for op in profiles[0].operations if op.kernel.startswith("matmul")} == {48}
    about = Measured(
        model=path, name="a", path=path, type="F32", nbytes=1, tensor_bytes=1, parameters=1,
        active=1,
    )  # fmt: skip
    assert f"text24 b3: {three.texts_per_second:.2f} texts per s" in markdown([(about, [report])])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depths": (4,)}, "remove --depth"),
        ({"speculate": True}, "remove --speculate"),
        ({"prompt_tokens": (0,)}, "remove -p 0"),
    ],
)
def test_bench_refuses_what_an_encoder_has_not(
    shared_data: Path, options: dict[str, Any], message: str
) -> None:
    chosen = {"prompt_tokens": (8,), "generated_tokens": (8,), **options}
    with load(str(shared_data / "encoders/bert_mean/model.gguf")) as model:
        engine: Any = model.engine
        with pytest.raises(InputError, match=message):
            run_bench(engine, Plan(**chosen))


def test_importance_of_an_encoders_channels(shared_data: Path) -> None:
    """The first projection's inputs are the normalized sums of the embeddings' rows."""
    path = str(shared_data / "encoders/bert_mean/model.gguf")
    seen: list[ImatrixProgress] = []
    with load(path, context_length=32) as model:
        found = gather_imatrix(model, TEXT, chunk_size=32, chunks=2, progress=seen.append)
        ids = np.array(model.tokenize(TEXT))[:64].reshape(2, 32)
        assert model.tokenizer.bos_id is not None
        assert model.tokenizer.eos_id is not None
        ids[:, 0], ids[:, -1] = model.tokenizer.bos_id, model.tokenizer.eos_id
        eps = model.config.rms_norm_eps
    with trinity.open_weights(path) as provider:
        rows, positions, texts, weight, bias = (
            provider.tensor(name).dequantize().reshape(provider.tensor(name).shape).astype("f8")
            for name in ("token_embd.weight", "position_embd.weight", "token_types.weight",
                         "token_embd_norm.weight", "token_embd_norm.bias")
        )  # fmt: skip
    x = rows[ids] + positions[:32] + texts[0]
    x -= x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight + bias
    sums = found.entries["blk.0.attn_q.weight"].sums.reshape(-1)
    assert np.allclose(sums, (x**2).sum(axis=(0, 1)), rtol=1e-4)
    assert [p.perplexity for p in seen] == [None, None]


def test_quantized_by_its_importance(path: str, tmp_path: Path) -> None:
    with load(path, context_length=32, kv_type="f32") as model:
        write_imatrix(str(tmp_path / "of.gguf"), gather_imatrix(model, TEXT, chunk_size=32))
        plain = model.embed([TEXT[:20]])
    out = str(tmp_path / "q8.gguf")
    quantize(path, out, "Q8_0", imatrix=str(tmp_path / "of.gguf"))
    with load(out, kv_type="f32") as model:
        assert (model.embed([TEXT[:20]]) * plain).sum() > 0.999
