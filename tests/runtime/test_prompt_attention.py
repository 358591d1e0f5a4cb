"""Attention of prompts rounds where their products do, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.matrix import some
from tests.runtime.steps import Logits
from tests.tiny_models import write_tiny_model
from trinity.providers import open_weights
from trinity.runtime import engine_building
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity.runtime.interface import Rows
from trinity.runtime.rounding import rounds_prompts
from trinity_kernels.isa import available_levels
from trinity_kernels.ops.matmul.tiles import matmul_tiles
from trinity_kernels.record import KERNEL

TILES = pytest.mark.skipif("amx" not in available_levels(), reason="this CPU has no AMX")
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 300, 300)]


def load(path: Path, **options: Any) -> CPUEngine:
    return load_engine(open_weights(path), threads=1, context_length=512, **options)


def prompt_of(engine: CPUEngine) -> Logits:
    """The logits of all tokens of a prompt."""
    return engine.step([Rows(engine.new_cache(), TOKENS, logits=len(TOKENS), prompt=True)])


def kernels_of(engine: CPUEngine, few: bool = False, kv_type: str = "F16") -> set[str]:
    """The names of the kernels of a step that has rows of a prompt."""
    names = engine.kernel_names()
    rounding = engine._rounding(prompt=True)
    plan = engine._parts.plans[kv_type, few, rounding, False]
    kernels = (names.get(int(address)) for address in plan.records["slots"][:, KERNEL])
    return {kernel[0] for kernel in kernels if kernel}


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["Q4_0"], True), (["Q4_K", "Q6_K", "F32"], True), (["Q4_0", "TQ2_0"], True),
        (["TQ2_0"], False), (["F16"], False), (["BF16", "Q4_0"], False), (["F32"], False),
        (["MXFP4", "Q8_0"], False), ([], False),
    ],
)  # fmt: skip
def test_which_types_round(types: list[str], expected: bool) -> None:
    assert rounds_prompts(matmul_tiles, types) is expected


@TILES
@pytest.mark.parametrize(
    "type_name", some(["Q4_0", "Q6_K", "I2_S", "F16", "F32"], ["Q4_0", "I2_S"])
)
def test_which_kernel_a_model_uses(tmp_path: Path, type_name: str) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type=type_name, hidden_size=256)
    rounds = type_name in ("Q4_0", "Q6_K")
    engine = load(path, isa="amx")
    assert ("prompt_attention" in engine.rounding) is rounds
    for few in (False, True):
        assert ("prompt_attention" in kernels_of(engine, few)) is rounds
        assert "prompt_attention" not in kernels_of(engine, few, "F32")
    engine.close()
    engine = load(path, isa="amx", batch_invariant=True)
    assert "prompt_attention" not in kernels_of(engine)
    engine.close()


@TILES
@pytest.mark.parametrize("kv_type", ["F16", "Q8_0"])
def test_logits_are_close_to_those_of_float32(
    tmp_path: Path, kv_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type="Q4_0", hidden_size=256, context_length=512)
    found = []
    for rounds in (True, False):
        if not rounds:
            monkeypatch.setattr(engine_building, "rounds_prompts", lambda *_: False)
        engine = load(path, isa="amx", kv_type=kv_type)
        found.append(prompt_of(engine))
        engine.close()
    difference = np.linalg.norm(found[0] - found[1]) / np.linalg.norm(found[1])
    assert 0 < difference < 0.02


@TILES
def test_generated_tokens_beside_a_prompt_get_its_rounding(tmp_path: Path) -> None:
    """They are kept for later prompts, so they need the bits of a prompt's rows."""
    path = tmp_path / "m.gguf"
    write_tiny_model(path, type="Q4_0", hidden_size=256, context_length=512)
    engine = load(path, isa="amx")
    expected = engine.step([Rows(engine.new_cache(), TOKENS, prompt=True)])[-1]
    cache, other = engine.new_cache(), engine.new_cache()
    engine.step([Rows(cache, TOKENS[:-1], prompt=True)])
    found = engine.step([Rows(other, TOKENS[:3], prompt=True), Rows(cache, TOKENS[-1:])])[-1]
    assert np.array_equal(found, expected)
    engine.close()
