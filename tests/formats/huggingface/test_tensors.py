"""Tensors and names of each class, and unsupported checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.raw_safetensors import write_safetensors
from tests.fuzzing.hf_families import stored_tensors
from trinity.errors import ConfigError, FormatError, UnsupportedError
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.gguf_order import permuted
from trinity.formats.huggingface.packed.logical import LogicalCheckpoint
from trinity.formats.huggingface.quantization import TernaryPacking
from trinity.formats.huggingface.stored import HFTensor, Stored, part, transposed
from trinity.formats.huggingface.weights import is_seen
from trinity.models import families, read_model
from trinity.providers.huggingface_tensors import hf_tensors

HEAD = ("lm_head.weight",)
SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 5,
    "max_position_embeddings": 64,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **SMALL, "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 4, "norm_topk_prob": True, "head_dim": 4,
}  # fmt: skip
GEMMA: dict[str, Any] = {
    **SMALL, "architectures": ["Gemma4ForCausalLM"], "num_hidden_layers": 4, "head_dim": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "global_head_dim": 8, "hidden_size_per_layer_input": 0,
}  # fmt: skip


def tensors_of(
    folder: Path,
    values: dict[str, Any],
    *,
    form: int = -1,
    without: str = "",
    more: tuple[str, ...] = (),
    prefix: tuple[str, str] = ("", ""),
) -> list[HFTensor]:
    """What a checkpoint gives that has every tensor of a configuration but one, and ``more``.

    ``form``: which of the forms of a tensor it has. ``prefix``: what names begin with, and what
    they begin with instead.
    """
    model = read_model(values, "config.json")
    own = {name for name, _, _ in stored_tensors(values, form)} - {*HEAD}
    old, new = prefix
    renamed = {new + name.removeprefix(old) if name.startswith(old) else name for name in own}
    kept = sorted((renamed | set(more)) - {without})
    path = folder / "model.safetensors"
    write_safetensors(path, {name: np.zeros((5, 8), np.float32) for name in kept})
    with Checkpoint(folder) as checkpoint:
        return hf_tensors(model, LogicalCheckpoint(checkpoint))


@pytest.mark.parametrize("name", ["BitNetForCausalLM", "BitnetForCausalLM"])
def test_norms_that_checkpoints_name_in_two_ways(name: str, tmp_path: Path) -> None:
    values = {**SMALL, "architectures": [name], "hidden_act": "silu"}
    sources = {tensor.name: tensor.source for tensor in tensors_of(tmp_path, values)}
    assert sources["blk.0.attn_sub_norm.weight"].endswith("self_attn.inner_attn_ln.weight")
    assert sources["blk.0.ffn_sub_norm.weight"].endswith("mlp.ffn_layernorm.weight")
    model = read_model(values, "config.json")
    assert model.config.architecture == "bitnet"
    # Of the first class a quantization_config says so, as in transformers.
    assert model.ternary == (None if name == "BitNetForCausalLM" else TernaryPacking(packed=False))


def test_biases_are_where_the_configuration_puts_them(tmp_path: Path) -> None:
    tensors = tensors_of(tmp_path, {**SMALL, "mlp_bias": True})
    assert [t.name for t in tensors if t.name.endswith(".bias")] == [
        "blk.0.ffn_gate.bias",
        "blk.0.ffn_up.bias",
        "blk.0.ffn_down.bias",
    ]
    assert [t.name for t in tensors if t.has_bias] == [
        "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight",
    ]


def test_output_of_its_own_or_tied(tmp_path: Path) -> None:
    """If config.json does not say, the tensor decides; with tied embeddings it is a copy."""
    last = [tensors_of(tmp_path, SMALL, more=more)[-1].name for more in ((), HEAD)]
    assert last == ["output_norm.weight", "output.weight"]
    tied = tensors_of(tmp_path, {**SMALL, "tie_word_embeddings": True}, more=HEAD)
    assert tied[-1].name == "output_norm.weight"


def test_missing_and_left_over(tmp_path: Path) -> None:
    gate = "model.layers.0.mlp.gate_proj.weight"
    with pytest.raises(FormatError, match=f"1 tensors .* missing.*{gate}"):
        tensors_of(tmp_path, SMALL, without=gate)
    with pytest.raises(FormatError, match=r"1 tensors are not used.*layers\.1"):
        tensors_of(tmp_path, SMALL, more=("model.layers.1.mlp.gate_proj.weight",))
    derived = "model.layers.0.self_attn.rotary_emb.inv_freq"
    assert tensors_of(tmp_path, SMALL, more=(derived,))


def test_experts_are_a_matrix_each_or_one_tensor(tmp_path: Path) -> None:
    each, together = (tensors_of(tmp_path, EXPERTS, form=form) for form in (0, 1))
    assert [t.name for t in each] == [t.name for t in together]
    names = {t.name: t.stored.names for t in each}
    assert names["blk.0.ffn_up_exps.weight"] == tuple(
        f"model.layers.0.mlp.experts.{expert}.up_proj.weight" for expert in range(2)
    )
    names = {t.name: t.stored.names for t in together}
    assert names["blk.0.ffn_up_exps.weight"] == ("model.layers.0.mlp.experts.gate_up_proj",)
    assert names["blk.0.ffn_gate_exps.weight"] == names["blk.0.ffn_up_exps.weight"]


def test_an_expert_that_is_missing(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.experts.1.down_proj.weight"
    with pytest.raises(FormatError, match=f"1 tensors .* missing.*{name}"):
        tensors_of(tmp_path, EXPERTS, form=0, without=name)


def test_many_that_are_missing_are_not_all_made(tmp_path: Path) -> None:
    """The configuration may require far more tensors than any file has."""
    model = read_model({**EXPERTS, "num_experts": 4096, "num_hidden_layers": 512}, "config.json")
    write_safetensors(tmp_path / "model.safetensors", {"a": np.zeros(1, np.float32)})
    with (
        Checkpoint(tmp_path) as checkpoint,
        pytest.raises(FormatError, match=r"or more tensors that config\.json requires are missing"),
    ):
        hf_tensors(model, LogicalCheckpoint(checkpoint))


def test_projections_that_a_class_loads_and_does_not_use(tmp_path: Path) -> None:
    """Gemma 4's last layers use the keys and values of other layers."""
    unused = ("model.layers.2.self_attn.k_proj.weight", "model.layers.3.self_attn.k_norm.weight")
    used = {name for t in tensors_of(tmp_path, GEMMA, more=unused) for name in t.stored.names}
    assert not used & set(unused)
    assert "model.layers.1.self_attn.k_proj.weight" in used
    with pytest.raises(FormatError, match=r"not used.*k_bias"):
        tensors_of(tmp_path, GEMMA, more=("model.layers.3.self_attn.k_bias",))


@pytest.mark.parametrize(
    "prefix", [("model.", "language_model.model."), ("model.", "model.language_model.")]
)
def test_the_part_that_writes_of_a_model_that_also_sees(
    prefix: tuple[str, str], tmp_path: Path
) -> None:
    values = {**SMALL, "architectures": ["Mistral3ForConditionalGeneration"], "head_dim": 4}
    inner = {"text_config": {**values, "architectures": None}, **values, "hidden_size": 999}
    others = ("vision_tower.layers.0.weight", "model.vision_tower.b", "multi_modal_projector.c")
    tensors = tensors_of(tmp_path, inner, more=others, prefix=prefix)
    plain = tensors_of(tmp_path, {**values, "architectures": ["Ministral3ForCausalLM"]})
    assert [t.name for t in tensors] == [t.name for t in plain]
    assert tensors[0].source == f"{prefix[1]}embed_tokens.weight"
    with pytest.raises(FormatError, match="not used"):
        tensors_of(tmp_path, inner, more=("something.else",), prefix=prefix)
    with pytest.raises(FormatError, match="stand for the same one"):
        tensors_of(tmp_path, inner, more=("lm_head.weight", "language_model.lm_head.weight"))


def test_the_text_of_mistral_small_has_no_yarn_by_default() -> None:
    """Mistral Small 3.1 has the same class as Ministral 3, whose text model has YaRN."""
    text = {**SMALL, "model_type": "mistral", "rope_theta": 1e9, "sliding_window": None}
    values = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": text}
    model = read_model(values, "config.json")
    assert (model.rope.theta, model.config.sliding_window) == (1e9, 0)
    assert "temperature_scale" not in model.own_fields
    text["model_type"] = "ministral3"
    assert read_model(values, "config.json").own_fields["temperature_scale"] == 0.1
    text["model_type"] = "mistral4"
    text |= {"q_lora_rank": 8, "kv_lora_rank": 8, "n_routed_experts": 2, "num_experts_per_tok": 1}
    text |= {"moe_intermediate_size": 8, "num_key_value_heads": None, "rope_theta": None}
    assert read_model(values, "config.json").config.architecture == "mistral4"


def test_a_wrapper_without_a_text_config() -> None:
    values = {"architectures": ["Gemma3ForConditionalGeneration"]}
    with pytest.raises(ConfigError, match="text_config is None"):
        read_model(values, "config.json")


def test_classes_that_are_not_known() -> None:
    with pytest.raises(UnsupportedError, match=r"'BloomForCausalLM'; trinity reads Afmoe"):
        read_model({**SMALL, "architectures": ["BloomForCausalLM"]}, "config.json")
    with pytest.raises(UnsupportedError, match="LlamaForCausalLM with silu"):
        read_model({**SMALL, "hidden_act": "gelu"}, "config.json")
    wide = {**SMALL, "architectures": ["BitNetForCausalLM"], "head_dim": 6}
    with pytest.raises(ConfigError, match="is not hidden_size 8"):
        read_model(wide, "config.json")


def test_every_class_belongs_to_one_family() -> None:
    """Or to one for each text model, if it holds several kinds of them."""
    names = [(name, "") for family in families() for name in family.classes]
    names += [(name, family.inner_type) for family in families() for name in family.wrappers]
    assert len(set(names)) == len(names)


def test_permuted_rows() -> None:
    """Row 2i of a head becomes row i, row 2i + 1 becomes row i + half."""
    rows, heads = np.arange(24 * 5).reshape(24, 5), 3
    found = permuted(rows, heads).reshape(24, 5)
    for head in range(heads):
        for i in range(4):
            np.testing.assert_array_equal(found[8 * head + 2 * i], rows[8 * head + i])
            np.testing.assert_array_equal(found[8 * head + 2 * i + 1], rows[8 * head + i + 4])


def test_matrices_of_a_stack_in_the_other_order_are_not_seen() -> None:
    stored = Stored(("x",), lambda array: part(0, 2)(transposed(array)))
    assert is_seen(stored, (3, 32, 64), (3, 32, 32))
    assert not is_seen(stored, (3, 64, 32), (3, 32, 32))
