"""Stacks of experts: each matrix is quantized alone, with its own importance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.expert_models import EXPERTS, LAYERS, Layout, write_expert_model
from tests.naive import float_tensors, naive_logits
from trinity import quantization as package
from trinity.errors import InputError
from trinity.formats import GGUFProvider
from trinity.formats.imatrix import Imatrix, ImatrixEntry, write_imatrix
from trinity.loading import load
from trinity.providers import open_weights
from trinity.quantization import quantize
from trinity.quantization.rows import row_steps
from trinity_kernels.quantizers import quantize_rows

TOKENS = [1, 270, 280, 300, 261, 33, 44, 5]
PARTS = ("gate", "up", "down")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Rows of 256, so that every type fits."""
    path = tmp_path / "source.gguf"
    write_expert_model(path, hidden=256, size=256)
    return path


def data(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with GGUFProvider(path) as model:
        return {
            name: (tensor.type, tensor.shape, tensor.data.tobytes())
            for name in model.tensor_names()
            for tensor in [model.tensor(name)]
        }


@pytest.mark.few(1)
@pytest.mark.parametrize("mix", ["Q8_0", "Q4_K_M", "Q2_K", "IQ4_NL", "MXFP4", "TQ2_0", "F16"])
def test_each_expert_is_quantized_as_if_it_were_alone(
    mix: str, source: Path, tmp_path: Path
) -> None:
    write_expert_model(tmp_path / "each.gguf", hidden=256, size=256, layout="each")
    out, each = tmp_path / "out.gguf", tmp_path / "out-each.gguf"
    done = quantize(source, out, mix)
    if mix == "MXFP4":  # which is for stacks alone
        quantize(tmp_path / "each.gguf", each, "Q8_0", tensor_types=[(r"ffn_\w+\.\d", "MXFP4")])
    else:
        quantize(tmp_path / "each.gguf", each, mix)
    stacks, matrices = data(out), data(each)
    for layer in range(LAYERS):
        for part in PARTS:
            kind, shape, found = stacks[f"blk.{layer}.ffn_{part}_exps.weight"]
            ones = [matrices[f"blk.{layer}.ffn_{part}.{e}.weight"] for e in range(EXPERTS)]
            assert shape == (EXPERTS, 256, 256)
            assert {one[0] for one in ones} == {kind}
            assert found == b"".join(one[2] for one in ones)
        assert stacks[f"blk.{layer}.ffn_gate_inp.weight"][0] == "F32"
    assert done.num_bytes == out.stat().st_size
    if mix == "TQ2_0":  # little is left of weights that are not ternary
        return
    provider = open_weights(out)
    expected = naive_logits(
        float_tensors(provider), provider.config, TOKENS, arch="llama", int8_activations=False
    )
    with load(out, kv_type="f32") as model:
        found_logits = model.logits(TOKENS)
    assert np.linalg.norm(found_logits - expected) < 0.02 * np.linalg.norm(expected)


def importance(path: Path, layout: Layout = "stacked") -> NDArray[np.float32]:
    """Return a matrix for every weight of experts; expert 4 was never used. Means (E, 256)."""
    rng = np.random.default_rng(2)
    sums = (rng.random((EXPERTS, 256)) ** 4 * 100).astype(np.float32)
    counts = np.arange(10, 10 + EXPERTS)
    counts[4], sums[4] = 0, 0
    entries = {}
    for layer in range(LAYERS):
        for part in PARTS:
            if layout == "stacked":
                entries[f"blk.{layer}.ffn_{part}_exps.weight"] = ImatrixEntry(sums, counts)
                continue
            for e in range(EXPERTS):
                one = ImatrixEntry(sums[e : e + 1], counts[e : e + 1])
                entries[f"blk.{layer}.ffn_{part}.{e}.weight"] = one
    write_imatrix(path, Imatrix(entries), overwrite=True)
    means: NDArray[np.float32] = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    means[4] = 1
    return means


@pytest.mark.full
@pytest.mark.parametrize("steps", [1, 100, 1 << 19])
def test_each_expert_has_its_own_importance(
    steps: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may have rows of several experts, and an expert may have rows of several steps."""
    monkeypatch.setattr(package.rows, "STEP_WEIGHTS", 256 * steps)
    means = importance(tmp_path / "imatrix.gguf")
    out = tmp_path / "out.gguf"
    done = quantize(source, out, "IQ4_NL", imatrix=tmp_path / "imatrix.gguf", pure=True)
    assert [note for note in done.notes if "used 2 experts, such as expert 4 of blk.0:" in note]
    with GGUFProvider(source) as given:
        for name, (kind, _, found) in data(out).items():
            if "_exps" in name:
                values = given.tensor(name).dequantize()
                pieces = [quantize_rows(kind, values[e], means[e]) for e in range(EXPERTS)]
                assert found == b"".join(piece.tobytes() for piece in pieces), name


def test_an_older_matrix_has_its_experts_in_one_row(source: Path, tmp_path: Path) -> None:
    means = importance(tmp_path / "imatrix.gguf")
    quantize(source, tmp_path / "a.gguf", "Q4_K_S", imatrix=tmp_path / "imatrix.gguf")
    entries = {
        f"blk.{layer}.ffn_{part}_exps.weight": ImatrixEntry(means.reshape(1, -1), np.array([1]))
        for layer in range(LAYERS)
        for part in PARTS
    }
    write_imatrix(tmp_path / "imatrix.gguf", Imatrix(entries), overwrite=True)
    quantize(source, tmp_path / "b.gguf", "Q4_K_S", imatrix=tmp_path / "imatrix.gguf")
    assert data(tmp_path / "a.gguf") == data(tmp_path / "b.gguf")


def test_a_matrix_of_another_number_of_experts_is_refused(source: Path, tmp_path: Path) -> None:
    name = "blk.0.ffn_up_exps.weight"
    entry = ImatrixEntry(np.ones((EXPERTS - 1, 256), np.float32), np.ones(EXPERTS - 1, np.int64))
    write_imatrix(tmp_path / "imatrix.gguf", Imatrix({name: entry}))
    with pytest.raises(InputError, match="another model"):
        quantize(source, tmp_path / "out.gguf", "Q4_K_S", imatrix=tmp_path / "imatrix.gguf")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("I2_S", "TQ2_0"), ("TQ2_0", "I2_S"), pytest.param("TQ1_0", "I2_S", marks=pytest.mark.full)],
)
def test_ternary_stacks(given: str, wanted: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_expert_model(source, type=given, hidden=256, size=256)
    quantize(source, out, wanted, token_embedding_type="F32")
    logits = []
    for path in (source, out):
        with load(path) as model:
            logits.append(model.logits(TOKENS))
    assert np.abs(logits[0] - logits[1]).max() < 1e-4


def test_a_scale_that_half_precision_would_round_stands_beside_every_expert(
    tmp_path: Path,
) -> None:
    source, out = tmp_path / "source.gguf", tmp_path / "out.gguf"
    write_expert_model(source, type="I2_S", hidden=256, size=256)
    with GGUFProvider(source) as model:
        tail = model.tensor("blk.0.ffn_up_exps.weight").data[-32:].tobytes()
    scale = (np.frombuffer(tail[:4], np.float32) * np.float32(1.00001)).tobytes()
    source.write_bytes(source.read_bytes().replace(tail, scale + tail[4:]))
    quantize(source, out, "TQ2_0", token_embedding_type="F32")
    with GGUFProvider(out) as model:
        found = model.tensor("blk.0.ffn_up_exps.scale").dequantize()
    assert found.tolist() == [np.frombuffer(scale, np.float32)[0]] * EXPERTS
    logits = []
    for path in (source, out):
        with load(path) as loaded:
            logits.append(loaded.logits(TOKENS))
    assert np.abs(logits[0] - logits[1]).max() < 1e-4


def test_steps_go_through_all_rows() -> None:
    for shape in ((5, 7, 64), (300, 1000, 96)):
        steps = row_steps(shape)
        assert steps[0][0] == 0
        assert [last for _, last in steps[:-1]] == [first for first, _ in steps[1:]]
        assert steps[-1][1] == shape[0] * shape[1]
