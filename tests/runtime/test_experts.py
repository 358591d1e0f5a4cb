"""Models with experts, compared with NumPy, in every layout and step size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.expert_models import EXPERTS, LAYERS, PER_TOKEN, Layout, write_expert_model
from tests.matrix import IN_FILES, KINDS, some
from tests.naive import float_tensors, naive_logits
from tests.runtime.steps import at_once, stepwise
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.providers import open_weights
from trinity.runtime import expert_buffers
from trinity.runtime.channel_squares import ChannelSquares
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.matmul.activations import FORMS

Logits = NDArray[np.float32]
LEVELS = available_levels()
TOKENS = [1, *(int(token) for token in np.random.default_rng(5).integers(3, 330, 69))]
TYPE_NAMES = pytest.mark.parametrize(
    "type_name", some(sorted(IN_FILES), {*KINDS, "MXFP4", "F16", "TQ2_0"})
)


def expected(path: Path) -> Logits:
    """By NumPy, of the stacked layout; ternary weights take rounded activations."""
    provider = open_weights(path)
    types = {provider.tensor(name).type for name in provider.tensor_names()}
    rounded = any(FORMS.get(name) == "ternary" for name in types)
    return naive_logits(
        float_tensors(provider), provider.config, TOKENS, arch="llama", int8_activations=rounded
    )


# Relative errors where activations are rounded: to 8 bits, and 2048 times as finely to 19.
ROUNDED = {"q8": 0.02, "q19": 0.02 / 2048}


@pytest.mark.few(1)
@TYPE_NAMES
@pytest.mark.parametrize("level", LEVELS)
def test_every_type(tmp_path: Path, type_name: str, level: str) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path, type=type_name)
    for threads in (1, 2):
        engine = load_engine(open_weights(path), isa=level, threads=threads, kv_type="f32")
        found, single = at_once(engine, TOKENS), stepwise(engine, TOKENS)
        invariant = at_once(engine, TOKENS, exact=True)
        engine.close()
        reference = expected(path)
        assert np.array_equal(invariant, single)
        if FORMS[type_name] in ROUNDED:
            for logits in (found, single):
                error = np.linalg.norm(logits - reference) / np.linalg.norm(reference)
                assert error < ROUNDED[FORMS[type_name]], error
            continue
        apart = np.abs(single - reference).max(axis=1)
        if FORMS[type_name] == "ternary":
            # A float that differs in its last bit may round to the other of two int8: then this
            # token and those that attend to it are off, as by any rounding to 8 bits.
            errors = np.linalg.norm(single - reference, axis=1)
            assert (errors < ROUNDED["q8"] * np.linalg.norm(reference, axis=1)).all()
            assert np.median(apart) < 1e-3
            assert np.array_equal(found, single)
        else:
            assert apart.max() < 1e-3
            if level == "amx":  # tiles split numbers in two, which leaves 2**-16 of a product out
                error = np.linalg.norm(found - single) / np.linalg.norm(reference)
                assert error < 2.0**-16, error
            else:
                assert np.abs(found - single).max() < 1e-4


@pytest.mark.few(1)
@pytest.mark.parametrize("type_name", ["F32", "Q4_0", "I2_S", "MXFP4"])
def test_levels_and_threads_leave_the_bits_of_a_token_alone(
    tmp_path: Path, type_name: str, levels: tuple[str, ...]
) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path, type=type_name)
    found = []
    for level in levels:
        for threads in (1, 3):
            engine = load_engine(open_weights(path), isa=level, threads=threads)
            found.append(stepwise(engine, TOKENS[:12]))
            engine.close()
    assert all(np.array_equal(logits, found[0]) for logits in found)


@pytest.mark.parametrize(
    "type_name", some(("F32", "Q8_0", "TQ1_0", "TQ2_0"), ("F32", "Q8_0", "TQ2_0"))
)
@pytest.mark.parametrize("layout", ["fused", "each"])
def test_layouts_of_a_file_give_the_same_bits(
    tmp_path: Path, type_name: str, layout: Layout
) -> None:
    found = []
    for name in ("stacked", layout):
        write_expert_model(tmp_path / name, type=type_name, layout=name)  # type: ignore[arg-type]
        engine = load_engine(open_weights(tmp_path / name))
        found.append(at_once(engine, TOKENS))
        engine.close()
    assert np.array_equal(*found)


@pytest.mark.parametrize("type_name", ["Q4_0", "I2_S"])
def test_a_batch_gives_what_each_sequence_gives_alone(tmp_path: Path, type_name: str) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path, type=type_name)
    engine = load_engine(open_weights(path), threads=2)
    pieces = [TOKENS[:20], TOKENS[20:21], TOKENS[21:23], TOKENS[23:29]]
    alone = np.concatenate([stepwise(engine, piece) for piece in pieces])
    rows = [Rows(engine.new_cache(), piece, len(piece)) for piece in pieces]
    assert np.array_equal(engine.step(rows, exact=type_name != "I2_S"), alone)
    engine.close()


def of_every_layer(name: str, values: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    return {f"blk.{layer}.{name}": values * np.float32(1 + layer) for layer in range(LAYERS)}


@pytest.mark.few(1)
@pytest.mark.parametrize("type_name", ["F32", "I2_S"])
def test_biases_and_scales_of_experts(tmp_path: Path, type_name: str) -> None:
    hidden, size = (64, 96) if type_name == "F32" else (128, 128)
    rng = np.random.default_rng(3)
    more: dict[str, NDArray[np.float32]] = {}
    for name, rows in {"gate": size, "up": size, "down": hidden}.items():
        biases = rng.normal(size=(EXPERTS, rows)).astype(np.float32)
        scales = rng.uniform(0.5, 2, EXPERTS).astype(np.float32)
        more |= of_every_layer(f"ffn_{name}_exps.bias", biases)
        more |= of_every_layer(f"ffn_{name}_exps.scale", scales)
    path = tmp_path / "m.gguf"
    write_expert_model(path, type=type_name, more=more, hidden=hidden, size=size)
    engine = load_engine(open_weights(path), kv_type="f32")
    for found in (at_once(engine, TOKENS), stepwise(engine, TOKENS)):
        assert np.abs(found - expected(path)).max() < 1e-3
    engine.close()


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    for layout in ("stacked", "fused", "each"):
        path = tmp_path / layout
        write_expert_model(path, type="Q4_0", layout=layout)  # type: ignore[arg-type]
        provider = open_weights(path)
        engine = load_engine(provider)
        count = 3 * LAYERS
        assert len(engine.expert_linears()) == count
        for weight in engine.expert_linears():
            for name, data in zip(weight.tensors, weight.data, strict=True):
                assert np.shares_memory(data, provider.tensor(name).data), name
        engine.close()


def test_a_token_is_said_to_read_its_experts_alone(tmp_path: Path) -> None:
    write_expert_model(tmp_path / "m.gguf", type="Q8_0")
    provider = open_weights(tmp_path / "m.gguf")
    engine = load_engine(provider)
    read = 0
    for name in provider.tensor_names():
        tensor = provider.tensor(name)
        if len(tensor.shape) > 1:  # the embedding is the head
            read += tensor.nbytes * PER_TOKEN // EXPERTS if "_exps" in name else tensor.nbytes
    assert engine.bytes_per_token(0) == read
    engine.close()


def test_squares_are_gathered_by_expert(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path)
    found = {}
    for layout in ("stacked", "each"):
        write_expert_model(path, layout=layout)  # type: ignore[arg-type]
        engine = load_engine(open_weights(path), kv_type="f32")
        squares = ChannelSquares()
        engine.gather(squares)
        at_once(engine, TOKENS)
        found[layout] = squares.take()
        assert all(not sums.any() for sums, _ in squares.take().values())
        engine.close()
    router, counts = found["stacked"]["blk.0.ffn_gate_inp.weight"]
    assert counts.tolist() == [len(TOKENS)]
    for name in ("gate", "up", "down"):
        sums, counts = found["stacked"][f"blk.1.ffn_{name}_exps.weight"]
        assert counts.shape == (EXPERTS,)
        assert counts.sum() == len(TOKENS) * PER_TOKEN
        for expert in range(EXPERTS):
            one, count = found["each"][f"blk.1.ffn_{name}.{expert}.weight"]
            assert np.array_equal(one[0], sums[expert])
            assert count.tolist() == [counts[expert]]
    # Each token's input of the router is that of its experts, too.
    gathered = found["stacked"]["blk.0.ffn_gate_exps.weight"][0].sum(axis=0)
    np.testing.assert_allclose(gathered, PER_TOKEN * router[0], rtol=1e-12)


def test_steps_are_as_long_as_buffers_of_experts_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path)
    whole = load_engine(open_weights(path), kv_type="f32")
    assert whole.prefill_chunk == 512
    monkeypatch.setattr(expert_buffers, "USUAL_BYTES", 100_000)
    monkeypatch.setattr(expert_buffers, "WEIGHTS_SHARE", 1 << 40)
    short = load_engine(open_weights(path), kv_type="f32")
    assert 1 <= short.prefill_chunk < 64
    cache, size = short.new_cache(), short.prefill_chunk
    pieces = [TOKENS[at : at + size] for at in range(0, len(TOKENS), size)]
    found = np.concatenate([short.step([Rows(cache, piece, len(piece))]) for piece in pieces])
    assert np.abs(found - at_once(whole, TOKENS)).max() < 1e-4
    for engine in (whole, short):
        engine.close()


def unequal(path: Path) -> None:
    """Experts of two types."""
    write_expert_model(path, type="Q8_0", layout="each")
    provider = open_weights(path)
    name = "blk.1.ffn_up.3.weight"
    values = provider.tensor(name).dequantize()
    write_expert_model(path, type="Q8_0", layout="each", more={name: values})


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"metadata": {"llama.expert_count": 5}}, ConfigError,
         r"ffn_gate_inp.*\(6, 64\).*\(5, 64\)"),
        ({"metadata": {"llama.expert_count": 7}, "layout": "each"}, ConfigError, "ffn_gate_inp"),
        ({"metadata": {"llama.expert_used_count": 7}}, ConfigError, "expert_used_count"),
        ({"metadata": {"llama.expert_used_count": 0}}, ConfigError, "expert_used_count"),
        ({"metadata": {"llama.expert_count": 1 << 31}}, ConfigError, "expert_count"),
        ({"metadata": {"llama.expert_count": 0}}, TrinityError, "expert_used_count|ffn_gate"),
        ({"metadata": {"llama.expert_gating_func": 9}}, ConfigError, "expert_gating_func"),
        ({"more": of_every_layer("ffn_up_exps.bias", np.zeros((6, 97), np.float32))}, ConfigError,
         r"blk.0.ffn_up_exps.bias.*\(6, 97\).*\(6, 96\)"),
        ({"more": of_every_layer("ffn_up_exps.scale", np.full(6, np.nan, np.float32))},
         UnsupportedError, "blk.0.ffn_up_exps.scale.*nan"),
        ({"more": {"blk.0.ffn_up.0.weight": np.zeros((96, 64), np.float32)}}, UnsupportedError,
         "blk.0.ffn_up.0.weight"),
    ],
)  # fmt: skip
def test_wrong_files(
    tmp_path: Path, options: Mapping[str, Any], error: type[TrinityError], match: str
) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path, **options)
    with pytest.raises(error, match=match):
        load_engine(open_weights(path))


def test_experts_of_two_types_are_refused(tmp_path: Path) -> None:
    unequal(tmp_path / "m.gguf")
    with pytest.raises(UnsupportedError, match=r"ffn_up\.3\.weight' has type F32.*Q8_0"):
        load_engine(open_weights(tmp_path / "m.gguf"))


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_expert_model(path, layout="each")
    path.write_bytes(path.read_bytes().replace(b"blk.1.ffn_up.3.", b"blk.1.ffn_uq.3."))
    with pytest.raises(ConfigError, match=r"blk\.1\.ffn_up\.3\.weight"):
        load_engine(open_weights(path))
