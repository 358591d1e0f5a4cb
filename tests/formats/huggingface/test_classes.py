"""A small model of each class gives transformers' logits, from a directory and from GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.formats.huggingface.class_configs import CONFIGS
from tests.formats.huggingface.class_keys import KEYS
from tests.formats.huggingface.class_models import PROMPT, TOKENS, golden, write
from tests.formats.raw_safetensors import write_safetensors
from tests.fuzzing.hf_families import configuration
from tests.tools.golden_models import edit_json
from trinity.errors import ConfigError, ContextLengthError, FormatError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.huggingface.metadata import model_metadata
from trinity.models import read_model
from trinity.providers import open_weights
from trinity.quantization import quantize
from trinity.runtime.interface import Rows
from trinity.tools.convert import convert
from trinity_kernels.isa import available_levels

LARGEST_DIFFERENCE = 1e-3
BETWEEN_STEPS = 1e-4  # of a prompt at once and token by token


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_greedy_tokens(name: str, level: str, threads: int, tmp_path: Path) -> None:
    path = write(name, tmp_path / "model")
    expected, greedy = golden(name)
    with trinity.load(path, kv_type="f32", isa=level, threads=threads) as model:
        found = model.logits(PROMPT)
        assert np.abs(found - expected).max() < LARGEST_DIFFERENCE
        for _ in range(2):  # the second time with the prefix that the first one has computed
            answer = model.generate(PROMPT, max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
            assert answer.token_ids == greedy
        with model.exclusive() as engine:
            cache = engine.new_cache()
            single = np.concatenate([engine.step([Rows(cache, [token])]) for token in PROMPT])
            caches = [engine.new_cache() for _ in range(3)]
            three = engine.step([Rows(cache, PROMPT) for cache in caches])
    assert np.abs(single - found).max() < BETWEEN_STEPS
    assert np.abs(three - found[-1]).max() < BETWEEN_STEPS


@pytest.mark.parametrize("name", CONFIGS)
def test_a_gguf_file_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    """Sums differ only where GGUF stores the rows of Q and K in another order."""
    folder, file = write(name, tmp_path / "model"), tmp_path / "model.gguf"
    convert(folder, file, outtype="f32")
    logits = []
    for path in (folder, file):
        with trinity.load(path, kv_type="f32") as model:
            logits.append(model.logits(PROMPT))
    weights = open_weights(folder)
    allowed = 0.0 if weights.rope_interleaved else BETWEEN_STEPS
    weights.close()
    assert np.abs(logits[0] - logits[1]).max() <= allowed


@pytest.mark.parametrize("name", CONFIGS)
def test_keys_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    convert(write(name, tmp_path / "model"), tmp_path / "model.gguf", outtype="f32")
    with GGUFProvider(tmp_path / "model.gguf") as provider:
        found = {key: provider.metadata[key] for key in provider.metadata}
    architecture = found["general.architecture"]
    for key, value in KEYS[name].items():
        assert found[f"{architecture}.{key}"] == pytest.approx(value), key


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv is 8.0"),
        ("olmoe", {"norm_topk_prob": True}, "norm_topk_prob is True"),
        ("gptneox", {"head_dim": 8}, "head_dim 8 x num_attention_heads 4 is not hidden_size 64"),
        ("gptneox", {"hidden_act": "gelu_fast"}, "hidden_act is 'gelu_fast'"),
        ("gptneox", {"use_parallel_residual": 1}, "use_parallel_residual is 1"),
        ("arcee", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
        (
            "hunyuan",
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "RoPE scaling of type 'dyn",
        ),
        ("hunyuan_moe", {"moe_topk": [3, 2]}, r"num_experts_per_tok is \[3, 2\]"),
        ("hunyuan_moe", {"num_shared_expert": [2, 2]}, r"num_shared_expert is \[2, 2\]"),
        ("maple", {"nope_on_global_attention": False}, "nope_on_global_attention is False"),
        ("minicpm", {"num_experts": 8}, "num_experts is 8"),
        ("minicpm3", {"dim_model_base": 128}, "dim_model_base is 128"),
        ("mistral4", {"n_group": 2, "topk_group": 1}, "n_group is 2"),
        ("mistral4", {"rope_interleave": False}, "rope_interleave is False"),
        (
            "mistral4",
            {"rope_parameters": {"rope_type": "yarn", "factor": 8.0, "mscale": 1.0}},
            "rope_parameters: rope_type must be yarn, with a value for llama_4_scaling_beta",
        ),
        (
            "mistral4",
            {"rope_parameters": {"rope_type": "yarn", "partial_rotary_factor": 0.5}},
            "partial_rotary_factor is 0.5",
        ),
        ("llama4", {"attn_temperature_tuning": False}, "attn_temperature_tuning is off"),
        ("llama4", {"no_rope_layers": [1, 1, 1, 1]}, "its layers rotate as"),
        ("llama4", {"no_rope_layers": "all"}, "no_rope_layers is 'all'; it must be a list"),
        ("llama4", {"use_qk_norm": False}, "use_qk_norm is False with 4 experts"),
        ("llama4", {"moe_layers": [0]}, r"moe_layers is \[0\]"),
        ("gemma3n", {"laurel_rank": 32}, "laurel_rank is 32"),
        ("gemma3n", {"vocab_size_per_layer_input": 300}, "vocab_size_per_layer_input is 300"),
        ("gemma3n", {"intermediate_size": [96, 96, 96, 96, 64]}, "intermediate_size is"),
        ("kimi_linear", {"moe_renormalize": False}, "norm_topk_prob is False"),
        ("bailingmoe2", {"norm_topk_prob": False}, "norm_topk_prob is False"),
        ("sarvam", {"use_qk_norm": False}, "use_qk_norm is False"),
        ("internlm2", {"bias": None}, "bias is True"),
        ("phimoe", {"num_experts_per_tok": 3}, "num_experts_per_tok is 3"),
        ("phimoe", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1"),
        (
            "phimoe",
            {"rope_scaling": CONFIGS["phimoe"]["rope_scaling"] | {"long_mscale": 1.5}},
            "rope_scaling: short_mscale 1.24 and long_mscale 1.5 differ",
        ),
        ("laguna", {"gating": False}, "gating is False"),
        ("laguna", {"gating_types": ["per-element"] * 5}, "gating_types is"),
        ("laguna", {"moe_router_logit_softcapping": 30.0}, "moe_router_logit_softcapping is 30"),
        ("laguna", {"num_attention_heads_per_layer": [4, 6]}, "num_attention_heads_per_layer is"),
        ("laguna", {"mlp_layer_types": ["sparse", "dense"] * 2}, "mlp_layer_types is"),
        ("step35", {"norm_expert_weight": False}, "norm_expert_weight is False"),
        ("step35", {"layer_types": ["full_attention"] * 4}, "no layer has a window"),
        ("step35", {"partial_rotary_factors": [1.0] * 4}, "16 of 16 values of a head rotate"),
        ("step35", {"rope_theta": [1e4]}, r"rope_theta is \[10000.0\]; it must have 4 values"),
        ("step35", {"swiglu_limits": [7.0]}, "swiglu_limits is"),
        ("step35", {"moe_layers_enum": "x"}, "moe_layers_enum is 'x'"),
        (
            "step35",
            {"attention_other_setting": {"num_attention_groups": 3}},
            "attention_other_setting: num_attention_groups is 3",
        ),
        ("deepseek_v32", {"layer_types": ["full_attention"] * 3}, "layer_types is"),
    ],
)
def test_what_gguf_cannot_say_is_refused(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = write(name, tmp_path / "model")
    edit_json(folder / "config.json", **changes)
    with pytest.raises((ConfigError, UnsupportedError), match=f"config.json: {said}"):
        trinity.load(folder)


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_the_context_ends_where_an_indexer_would_choose(name: str, tmp_path: Path) -> None:
    folder = write(name, tmp_path / "model")
    with trinity.load(folder) as model:
        assert model.context_length == CONFIGS[name]["index_topk"]
        with pytest.raises(ContextLengthError, match="the context holds 64"):
            model.generate(PROMPT * 4, max_tokens=1)


def test_dynamic_scaling_ends_at_the_trained_context(tmp_path: Path) -> None:
    """Within it nothing is scaled; beyond it transformers' results depend on earlier steps."""
    folder, most = write("internlm2", tmp_path / "model"), CONFIGS["internlm2"]
    length = most["max_position_embeddings"]
    with pytest.raises(UnsupportedError, match=rf"{length + 1} tokens exceeds .* \(dynamic\)"):
        trinity.load(folder, context_length=length + 1)
    with trinity.load(folder, context_length=length) as model:
        assert model.context_length == length
    with trinity.load(folder, context_length=2 * length, rope_scaling="linear") as model:
        assert model.context_length == 2 * length


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen2ForCausalLM"])
def test_dynamic_scaling_is_read_and_has_no_key(name: str) -> None:
    values = configuration(name, 258)
    dynamic = values | {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
    metadata = [model_metadata(read_model(v, "config.json"), "") for v in (values, dynamic)]
    assert metadata[0] == metadata[1]


def test_numbers_of_layers_are_single_values(tmp_path: Path) -> None:
    folder = write("apertus", tmp_path / "model")
    with Checkpoint(folder) as checkpoint:
        arrays = {name: checkpoint.tensor(name).elements().copy() for name in checkpoint.names()}
    name = "model.layers.1.mlp.act_fn.alpha_p"
    write_safetensors(folder / "model.safetensors", arrays | {name: np.zeros(2, np.float32)})
    with pytest.raises(FormatError, match=rf"'{name}' has the shape \(2,\); expected one value"):
        trinity.load(folder)
    del arrays[name]
    write_safetensors(folder / "model.safetensors", arrays)
    with pytest.raises(FormatError, match=f"missing, such as '{name}'"):
        trinity.load(folder)


def test_experts_as_transformers_5_saves_them(tmp_path: Path) -> None:
    """Qwen3-VL was published with matrices of (inputs, outputs)."""
    folder = write("qwen3_vl_moe", tmp_path / "model")
    with Checkpoint(folder) as checkpoint:
        arrays = {name: checkpoint.tensor(name).elements().copy() for name in checkpoint.names()}
    for name, array in arrays.items():
        if ".experts." in name:
            arrays[name] = np.ascontiguousarray(array.swapaxes(1, 2))
    write_safetensors(folder / "model.safetensors", arrays)
    with trinity.load(folder, kv_type="f32") as model:
        found = model.logits(PROMPT)
    assert np.abs(found - golden("qwen3_vl_moe")[0]).max() < LARGEST_DIFFERENCE


def test_a_table_of_fewer_rows_than_the_vocabulary_is_quantized(tmp_path: Path) -> None:
    """Gemma 3n's table of the inputs of layers; a file has rows of zeros after its rows."""
    folder, file = write("gemma3n", tmp_path / "model"), tmp_path / "model.gguf"
    quantize(folder, file, "Q8_0")
    logits = []
    for path, type_name in ((file, None), (folder, "Q8_0")):
        with trinity.load(path, quantize=type_name) as model:
            logits.append(model.logits(PROMPT))
    np.testing.assert_array_equal(*logits)


def test_rotation_by_layer_that_gguf_cannot_say_is_refused(tmp_path: Path) -> None:
    """Muse Glimmer's default rotation does not depend on which layers have a window."""
    folder = write("muse_glimmer", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text("utf-8"))
    values["text_config"]["layer_types"] = ["full_attention"] + ["sliding_attention"] * 3
    (folder / "config.json").write_text(json.dumps(values), "utf-8")
    with pytest.raises(UnsupportedError, match=r"layer_rope_theta is .* \(the default\)"):
        trinity.load(folder)


@pytest.mark.parametrize(("name", "own"), [("hunyuan_moe", "moe_topk"), ("ernie4_5_moe", "moe_k")])
def test_the_common_name_of_chosen_experts_overrides_the_own(name: str, own: str) -> None:
    """As with the attribute_map of transformers' configuration classes."""
    for common, expected in ((None, 3), (2, 2)):
        values = CONFIGS[name] | {own: 3, "num_experts_per_tok": common}
        experts = read_model(values, "config.json").config.experts
        assert experts is not None
        assert experts.num_experts_per_tok == expected


def test_null_is_not_the_default_of_a_flag() -> None:
    """Falcon's classes read null as false."""
    values = CONFIGS["falcon_7b"] | {"parallel_attn": None}
    with pytest.raises(UnsupportedError, match="parallel_attn is False"):
        model_metadata(read_model(values, "config.json"), "")


def test_one_base_for_layers_with_and_without_a_window_is_refused() -> None:
    """Olmo3's configuration class gives it only to layers without a window."""
    values = configuration("Olmo3ForCausalLM", 258)
    scaling = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e3}
    with pytest.raises(UnsupportedError, match="rope_theta is 1000"):
        model_metadata(read_model(values | {"rope_scaling": scaling}, "config.json"), "")
    model_metadata(read_model(values, "config.json"), "")
