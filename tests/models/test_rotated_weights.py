"""Rotated ternary weights give the logits of the same model without rotation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import trinity
from tests.models import rotated_models
from tests.models.rotated_models import HIDDEN, PROMPT, keys
from trinity.cli.inspect import describe
from trinity.errors import ConfigError, TrinityError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.runtime.interface import Rows

LARGEST_DIFFERENCE = 1e-3


def written(folder: Path, type_name: str = "PQ2_0", **changes: object) -> Path:
    values, blocks = rotated_models.stored(type_name)
    return rotated_models.write(folder / "r.gguf", keys(**changes), values, type_name, blocks)


@pytest.mark.few(1)
@pytest.mark.parametrize("sign_mode", ["explicit", "identity"])
@pytest.mark.parametrize("type_name", ["PQ2_0", "PTQ1_0"])
def test_logits_are_those_without_rotation(
    type_name: str, sign_mode: str, levels: tuple[str, ...], tmp_path: Path
) -> None:
    values, blocks = rotated_models.stored(type_name)
    path = rotated_models.write(tmp_path / "r.gguf", keys(sign_mode), values, type_name, blocks)
    plain = rotated_models.without_rotation(values, sign_mode)
    with trinity.load(rotated_models.write(tmp_path / "p.gguf", {}, plain), kv_type="f32") as model:
        expected = model.logits(PROMPT)
        greedy = model.generate(PROMPT, max_tokens=24, temperature=0.0, ignore_eos=True).token_ids
    assert np.abs(expected).max() > 1
    single = []
    for level in levels:
        with trinity.load(path, kv_type="f32", isa=level) as model:
            found = model.logits(PROMPT)
            assert np.abs(found - expected).max() < LARGEST_DIFFERENCE, level
            for _ in range(2):  # the second time with the prefix of the first
                text = model.generate(PROMPT, max_tokens=24, temperature=0.0, ignore_eos=True)
                assert text.token_ids == greedy
            with model.exclusive() as engine:
                cache = engine.new_cache()
                one = np.concatenate([engine.step([Rows(cache, [token])]) for token in PROMPT])
                caches = [engine.new_cache() for _ in range(3)]
                three = engine.step([Rows(cache, PROMPT) for cache in caches])
        single.append(one)
        assert np.abs(one - expected).max() < LARGEST_DIFFERENCE, level
        assert np.abs(three - expected[-1]).max() < LARGEST_DIFFERENCE, level
    for one in single:
        assert np.array_equal(one, single[0])


@pytest.mark.full
def test_batch_invariant_gives_the_bits_of_a_single_row(tmp_path: Path) -> None:
    path = written(tmp_path)
    with (
        trinity.load(path, kv_type="f32", batch_invariant=True) as model,
        model.exclusive() as engine,
    ):
        caches = [engine.new_cache() for _ in range(5)]
        alone = engine.step([Rows(caches[0], [7])])
        several = engine.step([Rows(cache, [7]) for cache in caches[1:]])
    assert all(np.array_equal(row, alone[0]) for row in several)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": np.uint32(2)}, "prism.hadamard.version '2'"),
        ({"version": None}, "prism.hadamard.version 'None'"),
        ({"transform": "dct"}, "prism.hadamard.transform 'dct'"),
        ({"axis": "rows"}, "prism.hadamard.axis 'rows'"),
        ({"sign_mode": "seeded"}, "prism.hadamard.sign_mode 'seeded'"),
        ({"tied_output": True}, "the key 'prism.hadamard.tied_output'"),
        ({"inverse_weight_names": ["output.weight"]}, "an inverse rotation of tensor 'output"),
        ({"weight_names": ["blk.0.ssm_norm.weight"]}, "name 'blk.0.ssm_norm.weight'"),
        ({"weight_names": ["blk.9.ffn_up.weight"]}, "name 'blk.9.ffn_up.weight'"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(UnsupportedError, match=said) as caught:
        trinity.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block_size": np.uint32(96)}, "block_size is not a power of 2"),
        ({"block_size": np.uint32(256)}, "inputs of 128 values are no multiple"),
        ({"sign_widths": np.array([HIDDEN], np.int32)}, "sign_values is not"),
        ({"sign_widths": np.array([], np.int32)}, "sign_widths is not"),
        ({"sign_values": None}, "sign_values is not"),
        ({"sign_widths": np.array([128, 256, 256, 128], np.int32)}, "sign_widths is not different"),
        ({"sign_widths": np.array([128, 640], np.int32)}, "no signs for inputs of 256"),
        ({"weight_names": "all"}, "weight_names is not an array"),
        ({"gdn_v_grouped": "yes"}, "gdn_v_grouped is not a bool"),
    ],
)
def test_malformed_keys_are_named(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        trinity.load(written(tmp_path, **changes))


def test_adapters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrinityError, match="its weights are rotated"):
        trinity.load(written(tmp_path), lora=[tmp_path / "no.gguf"])


def test_inspect_shows_the_rotation_without_names_and_signs(tmp_path: Path) -> None:
    path = written(tmp_path)
    with GGUFProvider(path) as provider:
        config = describe(str(path), provider)["config"]
    assert isinstance(config, dict)
    assert json.loads(json.dumps(config))["rotation"] == {
        "block_size": 128, "weights": 26, "embedding": True, "grouped_heads": True,
        "sign_widths": [128, 256, 384],
    }  # fmt: skip
