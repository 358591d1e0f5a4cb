"""The comparison of two models."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_models import write_tiny_model
from trinity.formats.gguf_writer import GGUFWriter
from trinity.providers import open_weights
from trinity.tools.diff import diff
from trinity_kernels.quants import TYPES


def made(path: Path, tensors: dict[str, tuple[str, np.ndarray]], **keys: object) -> Path:
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "llama")
        for key, value in keys.items():
            writer.add(key, value)
        for name, (kind, values) in tensors.items():
            writer.add_tensor(name, values.shape, kind, TYPES[kind].quantize(values))
    return path


def test_a_model_does_not_differ_from_its_copy(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_tiny_model(tmp_path / name, type="Q8_0")
    found = diff(open_weights(tmp_path / "a.gguf"), open_weights(tmp_path / "b.gguf"))
    assert found.is_empty
    assert found.same_tensors == len(open_weights(tmp_path / "a.gguf").tensor_names())


def test_keys_and_tensors(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    first = made(
        tmp_path / "a.gguf",
        {"w": ("F32", x), "only.a": ("F32", x), "shape": ("F32", x), "bytes": ("F32", x)},
        one=1,
        both=[1, 2],
        nan=float("nan"),
        texts=["a", "b"],
    )
    second = made(
        tmp_path / "b.gguf",
        {
            "w": ("Q8_0", x), "only.b": ("F32", x), "shape": ("F32", x[:2]),
            "bytes": ("F32", x + np.float32(0.1)),
        },
        two=1, both=[1, 3], nan=float("nan"), texts=["a", "b"],
    )  # fmt: skip
    found = diff(open_weights(first), open_weights(second))
    assert not found.is_empty
    assert (found.keys_only_first, found.keys_only_second) == (["one"], ["two"])
    assert found.keys_changed == ["both"]
    assert (found.tensors_only_first, found.tensors_only_second) == (["only.a"], ["only.b"])
    w, shape, bytes_ = found.tensors_changed
    q8 = TYPES["Q8_0"]
    error = q8.dequantize(q8.quantize(x), x.shape).astype(float) - x
    expected = np.sqrt(np.square(error).sum() / np.square(x.astype(float)).sum())
    assert w.types == ("F32", "Q8_0")
    assert w.rmse == pytest.approx(expected, rel=1e-6)
    assert (shape.shapes, shape.rmse) == (((4, 64), (2, 64)), None)
    assert bytes_.rmse == pytest.approx(0.1 / np.sqrt(np.square(x).mean()), rel=1e-3)


def test_ternary_types_mean_the_same(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(-1, 2, (8, 256)).astype(np.float32)
    first = made(tmp_path / "a.gguf", {"w": ("I2_S", x)})
    second = made(tmp_path / "b.gguf", {"w": ("TQ2_0", x)})
    (tensor,) = diff(open_weights(first), open_weights(second)).tensors_changed
    assert (tensor.types, tensor.rmse) == (("I2_S", "TQ2_0"), 0.0)


class Names(list[str]):
    """Counts how often the names are gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[str]:
        Names.rounds += 1
        return super().__iter__()


def test_the_work_grows_with_the_tensors_and_is_told_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros((1, 32), np.float32)
    a = open_weights(made(tmp_path / "a.gguf", {f"a{i}": ("F32", x) for i in range(100)}))
    b = open_weights(made(tmp_path / "b.gguf", {f"b{i}": ("F32", x) for i in range(100)}))
    names = Names(a.tensor_names())
    monkeypatch.setattr(a, "tensor_names", lambda: names)
    seen: list[tuple[int, int]] = []
    found = diff(a, b, lambda done, total, name: seen.append((done, total)))
    assert len(found.tensors_only_first) == len(found.tensors_only_second) == 100
    assert (seen[1], seen[-1]) == ((128, 12800), (12800, 12800))
    assert Names.rounds < 10


@pytest.mark.full
def test_tensors_of_any_size_take_little_memory(tmp_path: Path) -> None:
    x = np.zeros((4096, 4096), np.float32)
    first = open_weights(made(tmp_path / "a.gguf", {"w": ("F32", x)}))
    x[-1, -1] = 1
    second = open_weights(made(tmp_path / "b.gguf", {"w": ("F32", x)}))
    tracemalloc.start()
    try:
        assert diff(first, first).is_empty
        assert not diff(first, second).is_empty
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes
