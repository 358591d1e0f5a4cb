"""Weights that must be copied at loading: I2_S in ARM's order, rows that do not fit blocks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import trinity
from tests.kernels.reference import random_weights
from tests.naive import float_tensors, naive_logits
from tests.tiny_models import write_tiny_model
from trinity.errors import ConfigError, InputError, UnsupportedError
from trinity.formats.provider import Tensor, WeightProvider
from trinity.providers import open_weights
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.weights import Weights
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import TYPES


@dataclass
class Tensors:
    """What weights ask of a provider."""

    tensors: dict[str, Tensor]
    path: str = "x.gguf"

    def tensor_names(self) -> list[str]:
        return list(self.tensors)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]


TOKENS = np.array([1, 5, 300, 270, 44, 9], np.int32)


@pytest.mark.parametrize("isa", [None, "portable"])
def test_arm_order_gives_the_logits_of_the_same_model(tmp_path: Path, isa: str | None) -> None:
    found = []
    for type_name, layout in (("I2_S", "x86"), ("I2_S_ARM", "arm")):
        path = tmp_path / f"{layout}.gguf"
        write_tiny_model(path, arch="bitnet-b1.58", type=type_name, hidden_size=128)
        engine = load_engine(open_weights(path, i2s_layout=layout), isa=isa)
        found.append(engine.step([Rows(engine.new_cache(), TOKENS, len(TOKENS))]))
        engine.close()
    assert np.array_equal(found[0], found[1])


def test_rows_that_straddle_blocks(tmp_path: Path) -> None:
    """K = 192 is one and a half blocks, as K = 8640 in the published 3B model."""
    path = tmp_path / "m.gguf"
    write_tiny_model(
        path, arch="bitnet", type="I2_S", hidden_size=128, intermediate_size=192, head_dim=32
    )
    provider = open_weights(path)
    engine = load_engine(provider, kv_type="f32")
    found = engine.step([Rows(engine.new_cache(), TOKENS, len(TOKENS))])
    expected = naive_logits(
        float_tensors(provider), provider.config, TOKENS.tolist(),
        arch="bitnet", int8_activations=True,
    )  # fmt: skip
    assert np.abs(found - expected).max() < 1e-3
    engine.close()


@pytest.mark.parametrize("type_name", ["Q8_1", "Q8_K"])
def test_types_without_a_product_are_refused(tmp_path: Path, type_name: str) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type=type_name, hidden_size=256, intermediate_size=256)
    with pytest.raises(UnsupportedError, match=f"{type_name}, which trinity cannot run; .*Q8_0"):
        load_engine(open_weights(path))


def test_unknown_layout(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "m.gguf", arch="bitnet", type="I2_S")
    with pytest.raises(InputError, match="x86 or arm"):
        trinity.load(tmp_path / "m.gguf", i2s_layout="mips")


def test_inverted_scales_are_told(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, arch="bitnet", type="I2_S", hidden_size=128)
    found = bytearray(path.read_bytes())
    with open_weights(path) as provider:  # type: ignore[attr-defined]
        base = np.frombuffer(path.read_bytes(), np.uint8)
        for name in provider.tensor_names():
            tensor = provider.tensor(name)
            if tensor.type == "I2_S":
                tail = tensor.data[-64:].tobytes()
                at = base.tobytes().index(tail) + 32
                found[at : at + 4] = np.float32(47.0).tobytes()
    path.write_bytes(found)
    lines: list[str] = []
    load_engine(open_weights(path), progress=lines.append).close()
    assert [line for line in lines if "inverted" in line and "47" in line]
    with pytest.warns(RuntimeWarning, match="inverted"):
        load_engine(open_weights(path)).close()


@pytest.mark.parametrize("type_name", sorted(FORMS))
def test_matrices_of_heads(type_name: str) -> None:
    """The matrix of a head is a view of its part of the tensor, without a copy."""
    shape = 3, 5, 3 * TYPES[type_name].block_size
    data = random_weights(np.random.default_rng(1), type_name, 15, shape[2]).reshape(-1)
    if TYPES[type_name].tensor_scale:
        data = np.concatenate([data, np.full(8, 0.5, np.float32).view(np.uint8)])
    tensor = Tensor("w.weight", shape, type_name, data, "x.gguf")
    heads = Weights(cast(WeightProvider, Tensors({"w.weight": tensor}))).heads("w", *shape)
    expected = tensor.dequantize()
    assert len(heads) == 3
    for head, weight in enumerate(heads):
        assert (weight.n, weight.k) == shape[1:]
        assert np.shares_memory(weight.data, data)
        rows = TYPES[weight.type].decode_blocks(weight.data.view(TYPES[weight.type].block))
        found = rows.reshape(5, -1)[:, : shape[2]] * np.float32(weight.scale)
        assert np.array_equal(found, expected[head])


@pytest.mark.parametrize("type_name", ["I2_S", "I2_S_ARM"])
def test_matrices_of_heads_whose_rows_straddle_blocks(type_name: str) -> None:
    codes = np.random.default_rng(1).integers(-1, 2, (4, 6, 48)).astype(np.float32)
    data = TYPES[type_name].quantize(codes.reshape(-1))
    tensor = Tensor("w.weight", codes.shape, type_name, data, "x.gguf")
    heads = Weights(cast(WeightProvider, Tensors({"w.weight": tensor}))).heads("w", *codes.shape)
    for head, weight in enumerate(heads):
        blocks = weight.data.view(TYPES["I2_S"].block)
        rows = TYPES["I2_S"].decode_blocks(blocks).reshape(6, -1)[:, :48]
        assert np.array_equal(rows * np.float32(weight.scale), codes[head])


def test_what_an_operation_reads_by_itself_belongs_to_no_linear() -> None:
    tensors = {
        f"w.{what}": Tensor(f"w.{what}", shape, "F32", np.ones(4 * 12, np.uint8)[: 4 * size])
        for what, shape, size in (("weight", (3, 4), 12), ("scale", (4,), 4), ("bias", (3,), 3))
    }
    weights = Weights(cast(WeightProvider, Tensors(tensors)))
    assert weights.linear("w", 3, 4, {"w.scale"}).scale == 1
    assert weights.linear("w", 3, 4, {"w.scale", "w.bias"}).bias is None
    with pytest.raises(ConfigError, match=r"'w\.scale' has shape \(4,\), .* 1 values"):
        weights.linear("w", 3, 4)


def test_scales_whose_product_no_float_holds() -> None:
    """The logits show it; a signalling NaN is treated like any other."""
    i2_s = np.concatenate([np.full(32, 0x55, np.uint8), np.full(8, 1e30, "<f4").view(np.uint8)])
    large = Tensor("w.scale", (1,), "F32", np.array([1e30], "<f4").view(np.uint8))
    signals = Tensor("w.scale", (1,), "F32", np.array([0x7F800001], "<u4").view(np.uint8))
    weight = Tensor("w.weight", (1, 128), "I2_S", i2_s, "x.gguf")
    tensors = Tensors({"w.weight": weight, "w.scale": large})
    assert Weights(cast(WeightProvider, tensors)).linear("w", 1, 128).scale == np.inf
    bias = Tensor("w.bias", (1,), "F32", np.array([1e30], "<f4").view(np.uint8))
    linear = Weights(cast(WeightProvider, Tensors({"w.weight": weight, "w.bias": bias})))
    assert linear.linear("w", 1, 128).scaled(1e30).bias == np.inf
    tensors = Tensors({"w.weight": weight, "w.scale": signals})
    with pytest.raises(UnsupportedError, match="scale of nan"):
        Weights(cast(WeightProvider, tensors)).linear("w", 1, 128)
