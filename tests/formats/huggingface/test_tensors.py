"""Hugging Face's names and configuration against those that llama.cpp's converter wrote."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.formats.raw_safetensors import write_safetensors
from trinity.errors import ConfigError, FormatError, UnsupportedError
from trinity.formats import GGUFProvider
from trinity.formats.checkpoint import Checkpoint
from trinity.formats.configuration import config_from_metadata
from trinity.formats.hf_config import HFConfig, Ternary, hf_config
from trinity.formats.hf_files import CONFIG, files_of_directory
from trinity.formats.hf_metadata import model_metadata
from trinity.formats.hf_names import FAMILIES, family_of
from trinity.formats.hf_tensors import HFTensor, hf_tensors
from trinity.formats.hf_weights import check_stored
from trinity.formats.json_object import read_json_object

HEAD = ("lm_head.weight",)
CONVERTED = ("llama3_rope", "mistral_window")
SMALL = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 5,
    "max_position_embeddings": 64,
}  # fmt: skip


def config_of(**changes: object) -> HFConfig:
    return hf_config({**SMALL, **changes}, "config.json")


def tensors_of(
    folder: Path, config: HFConfig, *, without: str = "", more: tuple[str, ...] = ()
) -> list[HFTensor]:
    """What a checkpoint gives that has every tensor of ``config`` but one, and ``more``."""
    family = family_of(config)
    names = [f"{source}.weight" for source in ("model.embed_tokens", "model.norm")]
    names += [f"model.layers.0.{m.sources[-1]}.weight" for m in family.modules]
    kept = [name for name in (*names, *more) if name != without]
    write_safetensors(
        folder / "model.safetensors", {name: np.zeros((5, 8), np.float32) for name in kept}
    )
    with Checkpoint(folder) as checkpoint:
        return hf_tensors(config, family, checkpoint)


@pytest.mark.parametrize("name", CONVERTED)
def test_names_shapes_and_keys_are_those_of_llama_cpp(name: str, shared_data: Path) -> None:
    """The model.gguf beside the directory is what llama.cpp's converter made of it."""
    folder = shared_data / "architectures" / name
    files = files_of_directory(str(folder / "hf"))
    config = hf_config(read_json_object(files[CONFIG]), files[CONFIG])
    family = family_of(config)
    with GGUFProvider(folder / "model.gguf") as theirs, Checkpoint(folder / "hf") as checkpoint:
        expected = {n: theirs.tensor(n) for n in theirs.tensor_names()}
        factors = expected.pop("rope_freqs.weight", None)
        ours = {tensor.name: tensor for tensor in hf_tensors(config, family, checkpoint)}
        assert {n: t.shape for n, t in ours.items()} == {n: t.shape for n, t in expected.items()}
        for tensor in ours.values():
            check_stored(tensor, None, checkpoint)
            values = checkpoint.tensor(tensor.source).all_floats()
            same = np.array_equal(values, expected[tensor.name].dequantize())
            assert same == (tensor.permuted_heads == 0), tensor.name
        assert (factors is None) == (config.llama3_scaling is None)
        if factors is not None and config.llama3_scaling is not None:
            divisors = config.llama3_scaling.divisors(config.rope_theta, config.head_dim)
            np.testing.assert_allclose(divisors, factors.dequantize(), rtol=1e-6)
        keys = model_metadata(config, family.architecture(config), theirs.config.name)
        shapes = {n: t.shape for n, t in ours.items()}
        read = config_from_metadata(keys, shapes, source=str(folder))
        epsilon = struct.unpack("<f", struct.pack("<f", read.rms_norm_eps))[0]
        window = config.sliding_window or read.context_length
        assert replace(read, rms_norm_eps=epsilon) == replace(theirs.config, context_length=window)


@pytest.mark.parametrize("name", ["BitNetForCausalLM", "BitnetForCausalLM"])
def test_norms_that_checkpoints_name_in_two_ways(name: str, tmp_path: Path) -> None:
    config = config_of(architectures=[name], hidden_act="silu")
    sources = {tensor.name: tensor.source for tensor in tensors_of(tmp_path, config)}
    assert sources["blk.0.attn_sub_norm.weight"].endswith("self_attn.inner_attn_ln.weight")
    assert sources["blk.0.ffn_sub_norm.weight"].endswith("mlp.ffn_layernorm.weight")
    assert family_of(config).architecture(config) == "bitnet"
    assert family_of(config).ternary_form(config) == Ternary(packed=False)


def test_biases_are_where_the_configuration_puts_them(tmp_path: Path) -> None:
    more = tuple(f"model.layers.0.mlp.{part}_proj.bias" for part in ("gate", "up", "down"))
    tensors = tensors_of(tmp_path, config_of(mlp_bias=True), more=more)
    assert [t.name for t in tensors if t.name.endswith(".bias")] == [
        "blk.0.ffn_gate.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias",
    ]  # fmt: skip
    assert [t.name for t in tensors if t.has_bias] == [
        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight",
    ]  # fmt: skip


def test_output_of_its_own_or_tied(tmp_path: Path) -> None:
    """Where config.json does not say, the tensor does; beside tied embeddings it is a copy."""
    last = [tensors_of(tmp_path, config_of(), more=more)[-1].name for more in ((), HEAD)]
    assert last == ["output_norm.weight", "output.weight"]
    tied = tensors_of(tmp_path, config_of(tie_word_embeddings=True), more=HEAD)
    assert tied[-1].name == "output_norm.weight"


def test_missing_and_left_over(tmp_path: Path) -> None:
    gate = "model.layers.0.mlp.gate_proj.weight"
    with pytest.raises(FormatError, match=f"1 tensors .* missing.*{gate}"):
        tensors_of(tmp_path, config_of(), without=gate)
    with pytest.raises(FormatError, match=r"1 tensors have no place.*layers\.1"):
        tensors_of(tmp_path, config_of(), more=("model.layers.1.mlp.gate_proj.weight",))
    derived = "model.layers.0.self_attn.rotary_emb.inv_freq"
    assert tensors_of(tmp_path, config_of(), more=(derived,))


def test_classes_that_are_not_known() -> None:
    with pytest.raises(UnsupportedError, match=r"'GPT2LMHeadModel'; trinity reads Llama"):
        family_of(config_of(architectures=["GPT2LMHeadModel"]))
    gelu = config_of(hidden_act="gelu")
    with pytest.raises(UnsupportedError, match="LlamaForCausalLM with silu"):
        family_of(gelu).architecture(gelu)
    wide = config_of(architectures=["BitNetForCausalLM"], head_dim=6)
    with pytest.raises(ConfigError, match="is not hidden_size 8"):
        family_of(wide).architecture(wide)


def test_every_class_belongs_to_one_family() -> None:
    names = [name for family in FAMILIES for name in family.class_names]
    assert len(set(names)) == len(names)
