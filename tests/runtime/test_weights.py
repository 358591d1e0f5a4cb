"""Weights that cannot stay as they lie: I2_S in ARM's order, and rows that straddle blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.naive import float_tensors, naive_logits
from tests.tiny_models import write_tiny_model
from trinity.errors import InputError, UnsupportedError
from trinity.formats import open_weights
from trinity.runtime.engine import load_engine
from trinity.runtime.interface import Rows

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
