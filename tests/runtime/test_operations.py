"""Every operation in an engine's steps, compared with plain NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.naive_operations import NaiveDecoder, Rounding
from tests.runtime.steps import at_once, stepwise
from trinity import models
from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.provider import Tensor
from trinity.models.architecture import Architecture, Has, TokenTable
from trinity.models.decoder import Decoder
from trinity.models.operations import (
    Attention,
    Copy,
    Gated,
    GatedAdd,
    HeadLinear,
    Linear,
    Norm,
    Operation,
    Product,
    Rope,
    Rotation,
    Scale,
    Temperature,
)
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.kv_layout import layer_bytes
from trinity_kernels.ops.matmul.activations import FORMS
from trinity_kernels.quants import TYPES, quantize
from trinity_kernels.selftest.activation_forms import form_of

HIDDEN, VOCABULARY, HEADS, FFN = 64, 120, 12, 96
CONFIG = ModelConfig(
    architecture="odd", hidden_size=HIDDEN, intermediate_size=FFN, num_layers=4, num_heads=HEADS,
    num_kv_heads=2, head_dim=24, vocab_size=VOCABULARY, context_length=512, rms_norm_eps=1e-5,
    final_logit_softcap=5.0,
)  # fmt: skip
RANK, TURNED, PLAIN, VALUES = 64, 16, 32, 32  # of layer 0: latent attention
ROTATION = Rotation(1e4, TURNED)


def _latent() -> list[Operation]:
    """One head of keys, whose first values are the values; a matrix for each head on both sides."""
    size, key = RANK + TURNED, PLAIN + TURNED
    products = Product("attn_q", "heads", HEADS * key), Product("attn_kv", "k", size)
    return [
        Norm("x", "attn_norm", "h", HIDDEN),
        Linear("h", HIDDEN, products),
        Norm("k", "attn_kv_norm", "k", RANK),
        HeadLinear("heads", "q", "attn_k_b", HEADS, RANK, PLAIN, key, size),
        Copy("heads", "q", HEADS, TURNED, key, size, x_first=PLAIN, out_first=RANK),
        Rope(HEADS, 1, size, ROTATION, first=RANK, value_dim=RANK, value="k"),
        Attention(HEADS, 1, size, key**-0.5, value_dim=RANK),
        HeadLinear("a", "values", "attn_v_b", HEADS, VALUES, RANK, RANK, VALUES),
        Linear("values", HEADS * VALUES, (Product("attn_output", "x", HIDDEN),), add=True),
    ]


def _values_of_their_own(kv_heads: int, size: int, values: int) -> list[Operation]:
    """Parallel branches behind one norm with a mean, and heads with norms of their own."""
    products = (
        Product("attn_q", "q", HEADS * size), Product("attn_k", "k", kv_heads * size),
        Product("attn_v", "wide_v", kv_heads * values),
    )  # fmt: skip
    temperature = Temperature(0.3, 20)
    return [
        Norm("x", "attn_norm", "h", HIDDEN, kind="layer"),
        Linear("h", HIDDEN, products),
        Norm("q", "attn_q_norm", "q", size, HEADS, kind="layer", per_group=True),
        Norm("k", "attn_k_norm", "k", size, kv_heads, factor=0.5),
        Norm("wide_v", "", "wide_v", values, kv_heads),
        Rope(HEADS, kv_heads, size, ROTATION, value_dim=values, value="wide_v",
             temperature=temperature),
        Attention(HEADS, kv_heads, size, size**-0.5, value_dim=values, softcap=4.0),
        Linear("a", HEADS * values, (Product("attn_output", "x", HIDDEN),), add=True, scale=0.5),
        Linear("h", HIDDEN, (Product("ffn_up", "up", FFN),)),
        Gated("gelu", FFN, gate="up", up=""),
        Linear("up", FFN, (Product("ffn_down", "x", HIDDEN),), add=True),
    ]  # fmt: skip


def _anothers_keys(kv_heads: int, size: int, values: int) -> list[Operation]:
    """Queries alone, and a second branch with a gate for each token."""
    shared = Product("ffn_gate_up", "gate", FFN), Product("ffn_gate_up", "up", FFN, first=FFN)
    return [
        Norm("x", "attn_norm", "h", HIDDEN),
        Linear("h", HIDDEN, (Product("attn_q", "q", HEADS * size),)),
        Rope(HEADS, kv_heads, size, ROTATION, stores=False),
        Attention(HEADS, kv_heads, size, size**-0.5, sinks="attn_sinks", value_dim=values,
                  window=7, cache_of=1),
        Linear("a", HEADS * values, (Product("attn_output", "h", HIDDEN),)),
        Norm("h", "post_norm", "x", HIDDEN, add=True),
        Norm("x", "gate.scale", "h", HIDDEN, factor=0.125),
        Linear("h", HIDDEN, (*shared, Product("gate", "branch_gate", 1))),
        Gated("swiglu_oai", FFN),
        Linear("gate", FFN, (Product("ffn_down", "branch", HIDDEN),)),
        GatedAdd("branch_gate", "branch", "x", HIDDEN),
    ]  # fmt: skip


def _not_rotated() -> list[Operation]:
    """Positions do not count; a second embedding's part gates the stream."""
    products = tuple(Product(f"attn_{part}", part, 4 * 40) for part in "qkv")
    return [
        Norm("x", "attn_norm", "h", HIDDEN),
        Linear("h", HIDDEN, products),
        Rope(4, 4, 40, None),
        Attention(4, 4, 40, 0.2, window=130),
        Linear("a", 4 * 40, (Product("attn_output", "x", HIDDEN),), add=True),
        Linear("x", HIDDEN, (Product("inp_gate", "gate", 32),)),
        Gated("silu", 32, up="inputs", first=32),
        Linear("gate", 32, (Product("proj", "h", HIDDEN),)),
        Norm("h", "", "x", HIDDEN, add=True),
        Scale("x", HIDDEN, factor=0.5, weight="output_scale"),
    ]


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    shape = 2, 24, 40
    return [
        _latent(), _values_of_their_own(*shape), _anothers_keys(*shape), _not_rotated(),
    ][index]  # fmt: skip


def _prologue(config: ModelConfig) -> list[Operation]:
    return [
        Linear("x", HIDDEN, (Product("projection", "projected", 64),), scale=1 / 8),
        Norm("projected", "projection_norm", "inputs", 32, 2, add=True),
        Scale("inputs", 64, factor=math.sqrt(0.5)),
    ]


ODD = Architecture(
    ("odd",), _layer, rope_halves=True, embedding_scale=lambda config: 2.0,
    tables=lambda config: (TokenTable("second_embd", "inputs", 64, 3.0),), prologue=_prologue,
    norm="layer", logit_scale=lambda config: 0.25,
)  # fmt: skip


@dataclass
class Provider:
    """Tensors in memory."""

    tensors: Mapping[str, Tensor]
    config: ModelConfig = CONFIG
    path: str = "odd.gguf"
    rope_interleaved: bool = True

    @property
    def metadata(self) -> Mapping[str, object]:
        return {}

    def tensor_names(self) -> list[str]:
        return list(self.tensors)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]

    def check(self) -> None: ...

    def close(self) -> None: ...


BIASES = {
    "output.bias": VOCABULARY, "output_norm.bias": HIDDEN, "blk.1.attn_norm.bias": HIDDEN,
    "blk.1.attn_q_norm.bias": HEADS * 24, "blk.1.attn_q.bias": HEADS * 24,
    "blk.1.ffn_down.bias": HIDDEN, "projection.bias": 64,
}  # fmt: skip


def provider(type_name: str) -> Provider:
    """Random tensors; matrices that belong to layers, but for the router's one row, in a type."""
    rng = np.random.default_rng(5)
    shapes = Decoder(ODD, CONFIG, ()).tensors()
    shapes |= {name: (width,) for name, width in BIASES.items()}
    shapes["blk.1.attn_q_norm.bias"] = (HEADS, 24)
    tensors = {}
    for name, shape in shapes.items():
        matrix = len(shape) > 1 and "norm" not in name
        values = rng.normal(size=shape) / 8 if matrix else 1 + rng.normal(size=shape) / 4
        kind = type_name if matrix and name.startswith("blk.") and shape[0] > 1 else "F32"
        if TYPES[kind].ternary:
            values = np.sign(np.rint(values * 8)) / 8
        data = np.ascontiguousarray(quantize(kind, values.astype(np.float32).reshape(-1)))
        tensors[name] = Tensor(name, shape, kind, data, "odd.gguf")
    return Provider(tensors)


def naive(
    found: Provider, tokens: list[int], rounding: Rounding | None = None
) -> NDArray[np.float64]:
    """The logits by the formulas, with activations rounded as each weight's type asks for."""
    values = {name: tensor.dequantize() for name, tensor in found.tensors.items()}

    def rounded(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        floats = np.ascontiguousarray(x, np.float32)
        return form_of(FORMS[found.tensors[name].type], floats)[1]

    decoder = models.decoder_of(
        found.config, found.tensors.keys(), lambda name: found.tensors[name].shape, "odd.gguf"
    )
    return NaiveDecoder(decoder, values, False, rounding or rounded).logits(tokens)


@pytest.fixture(autouse=True)
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.ARCHITECTURES._all, "odd", ODD)  # type: ignore[attr-defined]


TOKENS = [int(token) for token in np.random.default_rng(2).integers(0, VOCABULARY, 150)]


@pytest.mark.few(1)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("level", available_levels())
def test_floats(level: str, threads: int) -> None:
    found = provider("F32")
    engine = load_engine(found, isa=level, threads=threads, kv_type="f32")
    expected = naive(found, TOKENS)
    logits = at_once(engine, TOKENS)
    assert np.abs(expected).max() > 1
    assert np.abs(logits - expected).max() < 1e-4
    tolerance = 1e-5 if level == "amx" else 0  # it splits activations in two
    assert np.abs(stepwise(engine, TOKENS) - logits).max() <= tolerance
    engine.close()


@pytest.mark.full
def test_ternary_matrices_of_heads_give_the_same_bits_everywhere(levels: tuple[str, ...]) -> None:
    found = provider("I2_S")
    expected: NDArray[np.float32] | None = None
    for level in levels:
        for threads in (1, 2):
            engine = load_engine(found, isa=level, threads=threads, kv_type="f32")
            some = TOKENS if threads == 2 else TOKENS[:20]
            for logits in (at_once(engine, TOKENS), stepwise(engine, some)):
                expected = logits if expected is None else expected
                assert np.array_equal(logits, expected[: len(logits)]), (level, threads)
            engine.close()
    assert expected is not None
    error = np.linalg.norm(expected - naive(found, TOKENS)) / np.linalg.norm(expected)
    assert error < 5e-3  # a rounding of activations may fall the other way


@pytest.mark.few(1)
@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("level", available_levels())
def test_blocks(type_name: str, level: str) -> None:
    found = provider(type_name)
    engine = load_engine(found, isa=level, threads=2, kv_type="f32")
    expected, size = naive(found, TOKENS), np.linalg.norm
    for logits in (at_once(engine, TOKENS), stepwise(engine, TOKENS), at_once(engine, TOKENS[:5])):
        assert size(logits - expected[: len(logits)]) / size(expected[: len(logits)]) < 0.02
    engine.close()


def test_any_mixture_of_rows() -> None:
    engine = load_engine(provider("Q8_0"), threads=2, batch_invariant=True)
    alone = stepwise(engine, TOKENS), stepwise(engine, TOKENS[::-1])
    caches = engine.new_cache(), engine.new_cache()
    pieces = [(0, 40), (40, 41), (41, 43), (43, 130), (130, 150)]
    for start, stop in pieces:
        rows = [
            Rows(cache, text[start:stop], logits=stop - start)
            for cache, text in zip(caches, (TOKENS, TOKENS[::-1]), strict=True)
        ]
        logits = np.split(engine.step(rows), 2)
        for found, expected in zip(logits, alone, strict=True):
            assert np.array_equal(found, expected[start:stop]), start
    engine.close()


def test_what_the_cache_holds() -> None:
    engine = load_engine(provider("F32"), kv_type="f16")
    sizes = [layer_bytes("F16", 1, 80, 64), layer_bytes("F16", 2, 24, 40), 0]
    found = engine.pool.sizes["F16"]
    assert found.full + found.windowed == sum(sizes) + layer_bytes("F16", 4, 40, 40)
    # At 300 positions one layer sees 7 of another's, one 130.
    read = layer_bytes("F16", 1, 80, 64, 300) + layer_bytes("F16", 2, 24, 40, 300)
    read += layer_bytes("F16", 2, 24, 40, 7) + layer_bytes("F16", 4, 40, 40, 130)
    weights = engine.bytes_per_token(300) - read
    assert weights == sum(weight.nbytes for _, weight in engine.linears())
    engine.close()


def test_profile_names_every_operation() -> None:
    engine = load_engine(provider("F32"), threads=2)
    times = engine.profile([Rows(engine.new_cache(), [1])])
    names = {time.kernel for time in times}
    assert {"norm", "copy", "scale", "gated_add", "softcap", "gated", "rope_store"} <= names
    assert sum(time.kernel == "matmul" and time.k == PLAIN for time in times) == HEADS + 1
    engine.close()


def test_squares_of_every_head() -> None:
    found = provider("F32")
    engine = load_engine(found, threads=2, kv_type="f32")
    gathered = ChannelSquares()
    engine.gather(gathered)
    at_once(engine, TOKENS[:20])
    stepwise(engine, TOKENS[:20])
    engine.close()
    taken = gathered.take()
    inputs: dict[str, list[NDArray[np.float64]]] = {}

    def noted(name: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        inputs.setdefault(name, []).append(x.copy())
        return x

    naive(found, TOKENS[:20], noted)
    for name, (sums, counts) in taken.items():
        expected = 2 * np.square(inputs[name][: len(sums)]).sum(axis=1)
        assert np.allclose(sums, expected, rtol=1e-5), name
        assert np.array_equal(counts, np.full(len(sums), 40)), name
    assert len(taken["blk.0.attn_k_b.weight"][0]) == len(taken["blk.0.attn_v_b.weight"][0]) == HEADS
    assert taken.keys() == {name for name in inputs if name.startswith("blk.")}


def _with(found: Provider, name: str, **changes: Any) -> Provider:
    return Provider(dict(found.tensors) | {name: replace(found.tensors[name], **changes)})


def test_refusals() -> None:
    found = provider("F32")
    name = "blk.0.attn_k_b.weight"
    data = found.tensors[name].data
    with pytest.raises(
        ConfigError, match=r"attn_k_b.weight' has shape \(12, 32, 64\), but .*64, 3"
    ):
        load_engine(_with(found, name, shape=(12, 32, 64)))
    with pytest.raises(UnsupportedError, match=r"type TL1 has shape \(12, 64, 32\)"):
        load_engine(_with(found, name, type="TL1", data=data[: data.size // 8]))
    with pytest.raises(UnsupportedError, match=r"type Q8_K, which trinity cannot run"):
        load_engine(_with(found, name, type="Q8_K"))
    with pytest.raises(
        UnsupportedError, match=r"'second_embd.weight' has type I2_S, which trinity"
    ):
        load_engine(_with(found, "second_embd.weight", type="I2_S"))
