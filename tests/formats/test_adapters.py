"""Adapter files: names, shapes and scales; everything else is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.formats.raw_safetensors import bfloat16, write_safetensors
from tests.matrix import some
from tests.models.adapter_files import Arrays, mlx_directory, peft_directory
from trinity.config import ExpertConfig, ModelConfig
from trinity.errors import FormatError, InputError, TrinityError, UnsupportedError
from trinity.formats.adapters import Base, LoraAdapter, Pair, open_adapter
from trinity.formats.adapters.adapter import MAX_RANK, as_float32, fitted
from trinity.formats.adapters.peft_config import peft_config
from trinity.formats.gguf_writer import GGUFWriter
from trinity.models import families_of

HIDDEN, WIDE, TOKENS, KV = 16, 24, 40, 8
CONFIG = ModelConfig("llama", HIDDEN, WIDE, 1, 2, 1, 8, TOKENS, 64, 1e-5)
SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (TOKENS, HIDDEN), "output.weight": (TOKENS, HIDDEN),
    "blk.0.attn_q.weight": (HIDDEN, HIDDEN), "blk.0.attn_k.weight": (KV, HIDDEN),
    "blk.0.attn_v.weight": (KV, HIDDEN), "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
    "blk.0.ffn_gate.weight": (WIDE, HIDDEN), "blk.0.ffn_up.weight": (WIDE, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, WIDE),
}  # fmt: skip
BASE = Base(
    "base.gguf",
    CONFIG,
    SHAPES,
    frozenset({"token_embd.weight"}),
    True,
    families_of(CONFIG.architecture),
)
V = "model.layers.0.self_attn.v_proj"


def array(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pair(module: str = V, out: int = KV, width: int = HIDDEN, rank: int = 4) -> Arrays:
    return {
        f"{module}.lora_A.weight": array(rank, width, seed=1),
        f"{module}.lora_B.weight": array(out, rank, seed=2),
    }


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result, or the error's message."""
    try:
        return call()
    except TrinityError as error:
        return error if str(error) else None


def gguf_file(
    path: Path, tensors: dict[str, NDArray[Any]], keys: dict[str, object] | None = None
) -> Path:
    values: dict[str, object] = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": 8.0,
    }
    kinds = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int32": "I32"}
    with GGUFWriter(path) as writer:
        for key, value in (values | (keys or {})).items():
            if value is not None:
                writer.add(key, value)
        for name, values_of in tensors.items():
            data = np.ascontiguousarray(values_of).reshape(-1).view(np.uint8)
            writer.add_tensor(name, values_of.shape, kinds[values_of.dtype.name], data)
    return path


def test_peft_pair(tmp_path: Path) -> None:
    tensors = pair()
    adapter = open_adapter(peft_directory(tmp_path / "a", tensors, lora_alpha=6), BASE)
    (found,) = adapter.pairs
    assert (found.name, found.scale) == ("blk.0.attn_v.weight", 6 / 4)
    assert np.array_equal(found.a, tensors[f"{V}.lora_A.weight"])
    assert np.array_equal(found.b, tensors[f"{V}.lora_B.weight"])
    assert adapter.nbytes == 4 * (4 * HIDDEN + KV * 4)


def test_queries_are_permuted_as_the_base_is(tmp_path: Path) -> None:
    """GGUF's row (head, 2j + p) is transformers' row (head, p * half + j)."""
    tensors = pair("model.layers.0.self_attn.q_proj", HIDDEN)
    (found,) = open_adapter(peft_directory(tmp_path / "a", tensors), BASE).pairs
    b = tensors["model.layers.0.self_attn.q_proj.lora_B.weight"].reshape(2, 2, 4, 4)
    for head, j, p in np.ndindex(2, 4, 2):
        assert np.array_equal(found.b[8 * head + 2 * j + p], b[head, p, j])


@pytest.mark.parametrize("stored", [np.float32, np.float16, np.uint16])
def test_elements_stay_as_they_are(stored: Any, tmp_path: Path) -> None:
    tensors = {
        name: bfloat16(values) if stored is np.uint16 else values.astype(stored)
        for name, values in pair().items()
    }
    (found,) = open_adapter(peft_directory(tmp_path / "a", tensors), BASE).pairs
    assert (found.a.dtype, found.b.dtype) == (stored, stored)
    assert np.array_equal(as_float32(found.a), as_float32(tensors[f"{V}.lora_A.weight"]))


def test_float64_becomes_float32(tmp_path: Path) -> None:
    tensors = {name: values.astype(np.float64) for name, values in pair().items()}
    (found,) = open_adapter(peft_directory(tmp_path / "a", tensors), BASE).pairs
    assert found.a.dtype == np.float32


GATE = "model.layers.0.mlp.gate_proj"


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({"lora_alpha": 6}, (1.5, 1.5)),
        ({"lora_alpha": 6, "use_rslora": True}, (3.0, 3.0)),
        ({"lora_alpha": 6.5, "r": 100}, (6.5 / 4, 6.5 / 4)),
        ({"lora_alpha": 6, "alpha_pattern": {"v_proj": 2}}, (0.5, 1.5)),
        ({"lora_alpha": 6, "alpha_pattern": {"proj": 2}}, (1.5, 1.5)),
        ({"lora_alpha": 6, "alpha_pattern": {"self_attn.v_proj": 2, "v_proj": 1}}, (0.5, 1.5)),
        ({"lora_alpha": 6, "alpha_pattern": {r".*\.gate_proj": 2}}, (1.5, 0.5)),
        ({"lora_alpha": 6, "alpha_pattern": {"(v|gate)_proj": 0, "v_proj": 1}}, (0.0, 0.0)),
        ({"lora_alpha": 6, "alpha_pattern": {r"layers\.[1-9].*": 2}}, (1.5, 1.5)),
        ({"lora_alpha": 6, "alpha_pattern": None}, (1.5, 1.5)),
    ],
)
def test_scales(config: dict[str, Any], scales: tuple[float, float], tmp_path: Path) -> None:
    tensors = pair() | pair(GATE, WIDE)
    adapter = open_adapter(peft_directory(tmp_path / "a", tensors, **config), BASE)
    found = {one.name: one.scale for one in adapter.pairs}
    assert (found["blk.0.attn_v.weight"], found["blk.0.ffn_gate.weight"]) == scales


@pytest.mark.few(1)
@pytest.mark.parametrize("pattern", ["(a+)+$", "(" * 60 + "a" + "*)" * 60, "(", "(?R)"])
def test_hostile_patterns_end(pattern: str) -> None:
    config = peft_config({"peft_type": "LORA", "alpha_pattern": {pattern: 1}}, "adapter.json")
    modules = {"model." + "a" * 60 + "!": 4}
    found = outcome(lambda: config.scales(modules))
    assert isinstance(found, FormatError) or found in (
        dict.fromkeys(modules, 2.0),
        dict.fromkeys(modules, 0.25),
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"peft_type": "LOHA"},
            "peft_type is 'LOHA', which is not supported; trinity applies adapters of type LORA",
        ),
        ({"peft_type": None}, "peft_type is None"),
        ({"use_dora": True}, "use_dora is True: DoRA"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]: whole tensors"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
        ({"lora_bias": True}, "lora_bias is True: biases"),
        ({"alora_invocation_tokens": [1, 2]}, r"alora_invocation_tokens is \[1, 2\]"),
        ({"invocation_string": "<a>"}, "invocation_string is '<a>'"),
        ({"trainable_token_indices": [3]}, r"trainable_token_indices is \[3\]: rows"),
        ({"use_qalora": True}, "use_qalora is True: QALoRA"),
        ({"layer_replication": [[0, 4]]}, "layer_replication"),
        ({"arrow_config": {"top_k": 2}}, "arrow_config"),
        (
            {"use_newest_idea": True},
            "use_newest_idea is True, which this version of trinity does not",
        ),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights is 'pissa_niter_4'"),
        ({"init_lora_weights": "olora"}, "path_initial_model_for_weight_conversion"),
    ],
)
def test_configurations_of_no_pairs(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = peft_directory(tmp_path / "a", pair(), **config)
    with pytest.raises(UnsupportedError, match=message):
        open_adapter(path, BASE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{V}.lora_magnitude_vector", "is DoRA"),
        (f"{V}.lora_magnitude_vector.weight", "is DoRA"),
        (f"{V}.lora_B.bias", "is a bias"),
        (f"{V}.base_layer.bias", "is a bias"),
        (f"{V}.bias", "is a bias"),
        ("lm_head.weight", "modules_to_save"),
        ("model.norm.weight", "modules_to_save"),
        ("model.embed_tokens.token_adapter.trainable_tokens_delta", "trainable tokens"),
        (f"{V}.base_layer.weight", "modules_to_save"),
    ],
)
def test_tensors_of_no_pairs(name: str, message: str, tmp_path: Path) -> None:
    path = peft_directory(tmp_path / "a", pair() | {name: array(4, 4)})
    with pytest.raises(UnsupportedError, match=f"'base_model.model.{name}' is .*{message[3:]}"):
        open_adapter(path, BASE)


def changed(name: str, values: NDArray[Any]) -> Arrays:
    return pair() | {name: values}


def both_levels(rank: int) -> Arrays:
    module = "model.layers.0.mlp.experts"
    inner = pair(f"{module}.base_layer", 2 * WIDE, rank=rank)
    return inner | pair(module, HIDDEN, WIDE, rank)


def only(half: str) -> Arrays:
    return {name: values for name, values in pair().items() if half in name}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (only("lora_A"), f"{V}.lora_A.weight' has no lora_B to pair with"),
        (only("lora_B"), f"{V}.lora_B.weight' has no lora_A to pair with"),
        (pair(out=KV + 1), r"\(4, 16\) and \(9, 4\), but the model's module has 16 inputs and 8"),
        (pair(width=HIDDEN + 1), r"\(4, 17\) and \(8, 4\), but the model's module has 16 inputs"),
        (changed(f"{V}.lora_B.weight", array(KV, 3)), r"lora_A has the shape \(4, 16\) and lora_B"),
        (changed(f"{V}.lora_B.weight", array(KV)), r"lora_B \(8,\); expected"),
        (changed(f"{V}.lora_A.weight", array(0, HIDDEN)), "expected"),
        (changed(f"{V}.lora_A.weight", np.full((4, HIDDEN), np.nan, "f4")), "numbers or exceed"),
        (changed(f"{V}.lora_A.weight", np.full((4, HIDDEN), 1e30, "f4")), "numbers or exceed"),
        (changed(f"{V}.lora_A.weight", np.full((4, HIDDEN), 0x7F80, "u2")), "numbers or exceed"),
        (changed(f"{V}.lora_C.weight", array(4)), "is not part of a LoRA adapter"),
        (changed(f"{V}.lora_A.default.weight", array(4)), "is not part of a LoRA adapter"),
        (pair("model.layers.1.self_attn.v_proj"),
         "no module 'model.layers.1.self_attn.v_proj' that an adapter can change; the nearest is "
         "'model.layers.0.self_attn.v_proj'"),
        (pair("transformer.h.0.attn"), "no module 'transformer.h.0.attn'"),
        (pair("model.embed_tokens", TOKENS), "the pair for tensor 'token_embd.weight'"),
        ({"model.norm.lora_embedding_A": array(4, 16), "model.norm.lora_embedding_B": array(8, 4)},
         "no module 'model.norm'"),
        ({f"{V}.lora_embedding_A": array(4, 16), f"{V}.lora_embedding_B": array(8, 4)},
         "another kind of module"),
        (both_levels(4), "the model base.gguf has 0"),
        (pair(rank=MAX_RANK + 1), f"1 to {MAX_RANK}"),
    ],
)  # fmt: skip
def test_damaged_and_misfitting_tensors(tensors: Arrays, message: str, tmp_path: Path) -> None:
    with pytest.raises((FormatError, UnsupportedError), match=message):
        open_adapter(peft_directory(tmp_path / "a", tensors), BASE)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lora_alpha": "6"}, "lora_alpha is '6'; it must be a number"),
        ({"lora_alpha": True}, "lora_alpha is True"),
        ({"lora_alpha": 10**400}, "lora_alpha is 1000"),
        ({"use_rslora": "yes"}, "use_rslora is 'yes'; it must be true or false"),
        ({"alpha_pattern": [1]}, r"alpha_pattern is \[1\]; it must be an object"),
        ({"alpha_pattern": {"v_proj": None}}, "alpha_pattern of 'v_proj' is None"),
        ({"target_parameters": [1]}, "target_parameters"),
    ],
)
def test_impossible_values(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        open_adapter(peft_directory(tmp_path / "a", pair(), **config), BASE)


def test_copies_of_embedding_and_output_are_left_out(tmp_path: Path) -> None:
    copies = {
        "model.embed_tokens.base_layer.weight": array(TOKENS, HIDDEN),
        "lm_head.base_layer.weight": array(TOKENS, HIDDEN),
    }
    path = peft_directory(tmp_path / "a", pair("lm_head", TOKENS) | copies)
    (found,) = open_adapter(path, BASE).pairs
    assert found.name == "output.weight"
    grown = {"lm_head.base_layer.weight": array(TOKENS + 2, HIDDEN)}
    path = peft_directory(tmp_path / "b", pair() | grown)
    with pytest.raises(UnsupportedError, match="the adapter changes the vocabulary"):
        open_adapter(path, BASE)


def experts_base(count: int = 3) -> Base:
    experts = ExpertConfig(count, 2, WIDE)
    config = ModelConfig("llama", HIDDEN, WIDE, 1, 2, 1, 8, TOKENS, 64, 1e-5, experts=experts)
    shapes = dict(SHAPES)
    shapes["blk.0.ffn_gate_exps.weight"] = shapes["blk.0.ffn_up_exps.weight"] = (
        count,
        WIDE,
        HIDDEN,
    )
    shapes["blk.0.ffn_down_exps.weight"] = (count, HIDDEN, WIDE)
    return Base(
        "experts.gguf",
        config,
        shapes,
        frozenset({"token_embd.weight"}),
        True,
        families_of(config.architecture),
    )


def experts_pairs(experts: int, rank: Callable[[int], int] = lambda expert: 4) -> Arrays:
    found: Arrays = {}
    for expert in range(experts):
        module = f"model.layers.0.block_sparse_moe.experts.{expert}.w1"
        found |= pair(module, WIDE, rank=rank(expert))
    return found


def test_products_beyond_float32_are_refused(tmp_path: Path) -> None:
    """The scales of experts are multiplied with the adapter's, without a NumPy warning."""
    tensors = {name: np.full_like(array, 1e38) for name, array in experts_pairs(3).items()}
    patterns = {f"experts.{expert}.w1": 100.0 * 4**expert for expert in range(3)}
    path = peft_directory(tmp_path / "a", tensors, alpha_pattern=patterns)
    with pytest.raises(FormatError, match="numbers or exceed"):
        open_adapter(path, experts_base())


def test_experts_of_different_scales(tmp_path: Path) -> None:
    tensors = experts_pairs(3)
    path = peft_directory(tmp_path / "a", tensors, lora_alpha=4, alpha_pattern={"experts.1.w1": 2})
    (found,) = open_adapter(path, experts_base()).pairs
    assert (found.name, found.scale) == ("blk.0.ffn_gate_exps.weight", 1.0)
    b = tensors["model.layers.0.block_sparse_moe.experts.1.w1.lora_B.weight"]
    other = tensors["model.layers.0.block_sparse_moe.experts.2.w1.lora_B.weight"]
    assert np.array_equal(found.b[1], b / 2)
    assert np.array_equal(found.b[2], other)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (experts_pairs(2), "pairs for 2 of its 3 experts, but none for expert 2"),
        (experts_pairs(3, lambda expert: 4 + expert), "differ in rank or type"),
        (experts_pairs(4), "no module 'model.layers.0.block_sparse_moe.experts.3.w1'"),
        (both_levels(4), "lora_A has 4 rows for all experts"),
        (pair("model.layers.0.mlp.experts"), "1 pairs for the parameters of this module"),
    ],
)
def test_misfitting_experts(tensors: Arrays, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrinityError, match=message):
        open_adapter(peft_directory(tmp_path / "a", tensors), experts_base())


@pytest.mark.parametrize("target", ["mlp.experts.gate_up_proj", "experts.down_proj"])
def test_one_of_the_experts_parameters(target: str, tmp_path: Path) -> None:
    """The checkpoint then has one level of wrappers, for any of the parameters."""
    is_down = target.endswith("down_proj")
    out, width = (HIDDEN, WIDE) if is_down else (2 * WIDE, HIDDEN)
    tensors = pair("model.layers.0.mlp.experts", out, width, rank=6)
    path = peft_directory(tmp_path / "a", tensors, target_parameters=[target], lora_alpha=4)
    found = {one.name: one for one in open_adapter(path, experts_base()).pairs}
    assert {name.split(".")[2] for name in found} == (
        {"ffn_down_exps"} if is_down else {"ffn_gate_exps", "ffn_up_exps"}
    )
    assert {one.scale for one in found.values()} == {2.0}
    a = tensors["model.layers.0.mlp.experts.lora_A.weight"]
    b = tensors["model.layers.0.mlp.experts.lora_B.weight"]
    for expert in range(3):
        whole = b[:, expert::3] @ a[2 * expert : 2 * expert + 2]
        parts = [found[name].b[expert] @ found[name].a[expert] for name in sorted(found)]
        assert np.allclose(np.concatenate(parts), whole, atol=1e-5)


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        ({f"{V}.lora_a": array(HIDDEN, 4)}, {}, f"{V}.lora_a' has no lora_b to pair with"),
        (
            {f"{V}.lora_a": array(HIDDEN, 4), f"{V}.lora_b": array(4, KV, 5)},
            {},
            r"\(4, 16\) and \(5, 8, 4\), but the model's module has 16 inputs and 8 outputs",
        ),
        ({f"{V}.m": array(4)}, {}, f"{V}.m' is DoRA"),
        ({f"{V}.weight": array(4)}, {}, "is not part of a pair"),
        ({}, {"fine_tune_type": "full"}, "fine_tune_type is 'full': whole tensors"),
        ({}, {"fine_tune_type": []}, r"fine_tune_type is \[\]"),
        ({}, {"lora_parameters": {"rank": 4}}, "the scale None; expected a number"),
        ({}, {"lora_parameters": 4}, "the scale None"),
    ],
)
def test_mlx_refusals(
    tensors: Arrays, config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    good: Arrays = {"lm_head.lora_a": array(HIDDEN, 4), "lm_head.lora_b": array(4, TOKENS)}
    path = mlx_directory(tmp_path / "a", tensors or good, **config)
    with pytest.raises((FormatError, UnsupportedError), match=message):
        open_adapter(path, BASE)


def test_mlx_checkpoint_file(tmp_path: Path) -> None:
    """The given file is not the last checkpoint of its directory."""
    tensors = {f"{V}.lora_a": array(HIDDEN, 4), f"{V}.lora_b": array(4, KV)}
    folder = mlx_directory(tmp_path / "a", tensors)
    other = {name: 2 * values for name, values in tensors.items()}
    write_safetensors(folder / "0000100_adapters.safetensors", other)
    (last,) = open_adapter(folder, BASE).pairs
    (found,) = open_adapter(folder / "0000100_adapters.safetensors", BASE).pairs
    assert np.array_equal(found.a, 2 * last.a)
    assert np.array_equal(last.b, tensors[f"{V}.lora_b"].T)


GGUF_PAIR = {
    "blk.0.attn_v.weight.lora_a": array(4, HIDDEN),
    "blk.0.attn_v.weight.lora_b": array(KV, 4),
}


@pytest.mark.parametrize(("alpha", "scale"), [(8.0, 2.0), (0.0, 1.0), (None, 1.0), (-2.0, -0.5)])
def test_gguf_scale(alpha: float | None, scale: float, tmp_path: Path) -> None:
    keys = {"adapter.lora.alpha": alpha}
    norms = {"blk.0.attn_norm.weight": array(HIDDEN)}
    path = gguf_file(tmp_path / "a.gguf", GGUF_PAIR | norms, keys)
    (found,) = open_adapter(path, BASE).pairs
    assert (found.name, found.scale) == ("blk.0.attn_v.weight", scale)


@pytest.mark.parametrize(
    ("tensors", "keys", "message"),
    [
        ({}, {"general.architecture": "qwen3"}, "is 'qwen3', but base.gguf is 'llama'"),
        ({}, {"general.type": "model"}, "general.type is 'model', not 'adapter'"),
        ({}, {"general.type": None}, "general.type is None"),
        ({}, {"general.type": np.array([1, 2], np.int32)}, "general.type is array"),
        ({}, {"adapter.type": np.array([1, 2], np.int32)}, "adapter.type is array"),
        ({}, {"general.architecture": np.array([1, 2], np.int32)}, "is array"),
        ({}, {"adapter.lora.alpha": np.array([1, 2], np.int32)}, "adapter.lora.alpha is array"),
        ({}, {"adapter.type": "control_vector"}, "adapter.type is 'control_vector'"),
        ({}, {"adapter.alora.invocation_tokens": np.array([1], np.uint32)}, "activated LoRA"),
        ({}, {"adapter.lora.alpha": "8"}, "adapter.lora.alpha is '8'"),
        ({}, {"adapter.lora.alpha": float("nan")}, "adapter.lora.alpha is nan"),
        ({"blk.0.ffn_up.weight.lora_a": array(4, HIDDEN)}, {},
         "has no partner 'blk.0.ffn_up.weight.lora_b'"),
        ({"blk.0.ffn_up.weight": array(4, HIDDEN)}, {}, "is not part of a pair"),
        ({"blk.9.ffn_up.weight.lora_a": array(4, HIDDEN),
          "blk.9.ffn_up.weight.lora_b": array(WIDE, 4)}, {},
         "no tensor 'blk.9.ffn_up.weight' that"),
        ({"blk.0.attn_v.weight.lora_b": array(KV + 8, 4)}, {},
         r"\(4, 16\) and \(16, 4\); the model's shape \(8, 16\) needs \(4, 16\) and \(8, 4\)"),
        ({"blk.0.attn_v.weight.lora_a": np.ones((4, HIDDEN), np.int32)}, {}, "has type I32"),
    ],
)  # fmt: skip
def test_gguf_refusals(
    tensors: dict[str, NDArray[Any]], keys: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = gguf_file(tmp_path / "a.gguf", GGUF_PAIR | tensors, keys)
    with pytest.raises((FormatError, UnsupportedError), match=message):
        open_adapter(path, BASE)


def test_places_without_adapter(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        open_adapter(tmp_path / "none.gguf", BASE)
    with pytest.raises(InputError, match="there is no such file"):
        open_adapter(tmp_path / "none" / "adapters.safetensors", BASE)
    gguf_file(tmp_path / "a.gguf", GGUF_PAIR)
    with pytest.raises(InputError, match=r"no adapter_config.json in .*; it contains a.gguf"):
        open_adapter(tmp_path, BASE)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(FormatError, match="neither peft_type"):
        open_adapter(tmp_path, BASE)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(InputError, match=r"adapter_model\.safetensors: there is no such file"):
        open_adapter(tmp_path, BASE)
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(UnsupportedError, match="a pickle file, which can run arbitrary code"):
        open_adapter(tmp_path, BASE)


def test_values_up_to_the_limit() -> None:
    for value, fits in ((1e18, True), (1.1e18, False), (-1.1e18, False)):
        a, b = np.full((4, HIDDEN), value, np.float32), array(KV, 4)
        found = outcome(partial(fitted, BASE, "file", "blk.0.attn_v.weight", a, b, 1.0))
        assert isinstance(found, Pair if fits else FormatError)


@pytest.mark.parametrize("seed", some(range(40), [0], range(1, 10)))
def test_mutated_files_end_in_an_adapter_or_an_error(seed: int, tmp_path: Path) -> None:
    """Bytes of headers, configurations and keys are changed at random."""
    rng = random.Random(seed)
    mlx = {f"{V}.lora_a": array(HIDDEN, 4), f"{V}.lora_b": array(4, KV)}
    peft = peft_directory(tmp_path / "p", pair(), alpha_pattern={"v_proj": 3})
    files = (
        (peft, "adapter_config.json"),
        (tmp_path / "p", "adapter_model.safetensors"),
        (mlx_directory(tmp_path / "m", mlx), "adapter_config.json"),
        (tmp_path / "m", "adapters.safetensors"),
        (gguf_file(tmp_path / "a.gguf", GGUF_PAIR), ""),
    )
    for place, name in files:
        file = place / name if name else place
        original = file.read_bytes()
        for _ in range(25):
            raw = bytearray(original)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(min(len(raw), 700))
                raw[at] = rng.choice([rng.randrange(256), raw[at] ^ (1 << rng.randrange(8))])
            file.write_bytes(bytes(raw[: rng.choice([len(raw), rng.randrange(1, len(raw))])]))
            found = outcome(partial(open_adapter, place, BASE))
            assert isinstance(found, LoraAdapter | TrinityError)
        file.write_bytes(original)


def test_json_values_of_every_kind(tmp_path: Path) -> None:
    """Each key of a real configuration gets values of other types."""
    keys = (
        "peft_type", "lora_alpha", "use_rslora", "alpha_pattern", "bias", "modules_to_save",
        "target_parameters", "init_lora_weights", "ensure_weight_tying", "fine_tune_type",
        "lora_parameters",
    )  # fmt: skip
    folder = peft_directory(tmp_path / "a", pair())
    for key in keys:
        for value in (None, True, -1, 1.5, "x", [], [1], {}, {"a": []}, [[]]):
            values = {"peft_type": "LORA", "lora_alpha": 4, key: value}
            (folder / "adapter_config.json").write_text(json.dumps(values), "utf-8")
            found = outcome(partial(open_adapter, folder, BASE))
            assert isinstance(found, TrinityError) or len(found.pairs) == 1
