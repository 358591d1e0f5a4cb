"""Converted models give transformers' results on the originals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.formats.raw_safetensors import bfloat16, write_safetensors
from tests.naive import float_tensors, naive_logits
from tests.tools.golden_models import NAMES, edit_json, golden, model_directory
from trinity.formats.gguf_order import permuted
from trinity.formats.safetensors import SafeTensorsFile
from trinity.loading import load, load_tokenizer
from trinity.providers import open_weights
from trinity.tools.convert import OUTTYPES, convert

Logits = NDArray[np.float32]
TERNARY = ("i2_s", "tq1_0", "tq2_0")
# The widest difference of a logit from transformers' float32 one. Where the type holds the weights
# exactly, only the order of float sums differs; Q8_0 rounds weights and activations.
EXACT = [
    *(("bitnet-packed", outtype, 2e-3) for outtype in TERNARY),
    *(("bitnet-masters", outtype, 2e-3) for outtype in TERNARY),
    ("bitnet-odd", "i2_s", 2e-3),
    ("llama-packed", "i2_s", 2e-3),
    ("llama-grouped", "f32", 1e-3),
    ("llama-sharded", "f32", 1e-3),
    ("llama-grouped", "bf16", 1e-3),
    ("llama-sharded", "f16", 1e-3),
]
ROUNDED = [
    ("llama-grouped", "q8_0", 0.2),
    ("llama-sharded", "bf16", 0.1),
    ("llama-sharded", "q8_0", 0.1),
]


def converted_logits(name: str, outtype: str, folder: Path) -> tuple[Logits, Logits]:
    """The logits of a converted directory, and transformers'."""
    expected = golden(name)
    path = folder / "model.gguf"
    convert(model_directory(name, folder), path, outtype)
    with load(path) as model:
        return model.logits(expected.tokens), expected.logits


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "outtype", "tolerance"), EXACT)
def test_logits_are_those_of_transformers(
    name: str, outtype: str, tolerance: float, tmp_path: Path
) -> None:
    logits, expected = converted_logits(name, outtype, tmp_path)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(logits.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.full
@pytest.mark.parametrize(("name", "outtype", "tolerance"), ROUNDED)
def test_rounded_weights_stay_near(
    name: str, outtype: str, tolerance: float, tmp_path: Path
) -> None:
    logits, expected = converted_logits(name, outtype, tmp_path)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    expected = golden(name)
    path = tmp_path / "model.gguf"
    convert(model_directory(name, tmp_path), path, "f16")
    tokenizer = load_tokenizer(path)
    assert tokenizer.encode(expected.text) == expected.text_ids
    assert tokenizer.decode(expected.text_ids, skip_special=True) == expected.text
    assert tokenizer.chat_template is not None


@pytest.mark.few(2)
@pytest.mark.parametrize("outtype", OUTTYPES)
def test_a_ternary_model_goes_into_every_type(outtype: str, tmp_path: Path) -> None:
    """The float types store the rounded weights: those of the ternary file, exact in F32."""
    directory = model_directory("bitnet-masters", tmp_path)
    made = convert(directory, tmp_path / "model.gguf", outtype)
    convert(directory, tmp_path / "i2_s.gguf", "i2_s")
    weights, ternary = (
        float_tensors(open_weights(tmp_path / name)) for name in ("model.gguf", "i2_s.gguf")
    )
    scales = {name: values for name, values in weights.items() if name.endswith(".scale")}
    assert weights.keys() - scales.keys() == ternary.keys()
    for name in ternary:
        values = weights[name] * scales.get(name.replace(".weight", ".scale"), np.float32(1))
        np.testing.assert_allclose(values, ternary[name], rtol=0.01, atol=1e-3, err_msg=name)
        if outtype in ("f32", "i2_s"):
            atol = 1e-3 if name == "token_embd.weight" else 0
            np.testing.assert_allclose(values, ternary[name], rtol=0, atol=atol, err_msg=name)
    types = {t.type for t in map(open_weights(made.path).tensor, weights) if ".attn_q.w" in t.name}
    assert types == {OUTTYPES[outtype][0]}
    assert bool(made.notes) == (outtype not in TERNARY)


@pytest.mark.full
@pytest.mark.parametrize("outtype", ["tq1_0", "tq2_0"])
def test_scales_that_half_precision_would_round_have_tensors(outtype: str, tmp_path: Path) -> None:
    """The blocks contain the scale if it is exact there; otherwise they hold -1, 0, +1."""
    directory = model_directory("bitnet-packed", tmp_path)
    convert(directory, tmp_path / "half.gguf", outtype)
    assert not [n for n in open_weights(tmp_path / "half.gguf").tensor_names() if "scale" in n]
    tensors: dict[str, np.ndarray] = {}
    with SafeTensorsFile(directory / "model.safetensors") as file:
        for name in file.names():
            tensor = file.tensor(name)
            if tensor.dtype == "U8":
                tensors[name] = tensor.data.reshape(tensor.shape)
            else:
                tensors[name] = bfloat16(tensor.all_floats())
    name = "model.layers.1.mlp.down_proj.weight_scale"
    tensors[name] = np.array([0.0937654], np.float32)
    write_safetensors(directory / "model.safetensors", tensors)
    made = convert(directory, tmp_path / "one.gguf", outtype)
    weights = open_weights(made.path)
    scale = weights.tensor("blk.1.ffn_down.scale")
    assert (scale.type, scale.shape, made.num_tensors) == ("F32", (1,), 25)
    assert scale.dequantize() == np.float32(0.0937654)
    assert set(np.unique(weights.tensor("blk.1.ffn_down.weight").dequantize())) == {-1, 0, 1}
    convert(directory, tmp_path / "i2_s.gguf", "i2_s")
    tokens = golden("bitnet-packed").tokens
    with load(made.path) as model, load(tmp_path / "i2_s.gguf") as exact:
        np.testing.assert_allclose(model.logits(tokens), exact.logits(tokens), atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("outtype", TERNARY)
@pytest.mark.parametrize("name", ["bitnet-packed", "bitnet-masters"])
def test_float64_reference_agrees_too(name: str, outtype: str, tmp_path: Path) -> None:
    """The reference is a NumPy graph over the converted weights, independent of the engine."""
    expected = golden(name)
    path = tmp_path / "model.gguf"
    convert(model_directory(name, tmp_path), path, outtype)
    weights = open_weights(path)
    logits = naive_logits(
        float_tensors(weights),
        weights.config,
        expected.tokens,
        arch="bitnet-b1.58",
        int8_activations=True,
    )
    np.testing.assert_allclose(logits, expected.logits, rtol=0, atol=2e-3)


def test_packed_and_master_weights_of_one_model_are_one(tmp_path: Path) -> None:
    """Packing the rounded master weights as transformers does gives the same weights."""
    masters = model_directory("bitnet-masters", tmp_path)
    convert(masters, tmp_path / "masters.gguf", "i2_s")
    made = open_weights(tmp_path / "masters.gguf")
    tensors: dict[str, np.ndarray] = {}
    with SafeTensorsFile(masters / "model.safetensors") as file:
        for name in file.names():
            values = file.tensor(name).all_floats()
            if "_proj" not in name:
                tensors[name] = bfloat16(values)
                continue
            scale = np.abs(values).mean(dtype=np.float64)
            codes = np.clip(np.rint(values / scale), -1, 1).astype(np.int8) + 1
            quarters = codes.astype(np.uint8).reshape(4, -1, codes.shape[1])
            shifts = np.array([0, 2, 4, 6], np.uint8)[:, None, None]
            tensors[name] = np.bitwise_or.reduce(quarters << shifts, axis=0)
            tensors[f"{name}_scale"] = np.array([scale], np.float32)
    write_safetensors(masters / "model.safetensors", tensors)
    quantization = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
    edit_json(masters / "config.json", quantization_config=quantization)
    convert(masters, tmp_path / "packed.gguf", "i2_s")
    packed = open_weights(tmp_path / "packed.gguf")
    for name in made.tensor_names():
        # transformers' own scale of masters is 1 / (1 / mean): the last bit may differ.
        np.testing.assert_allclose(
            made.tensor(name).dequantize(),
            packed.tensor(name).dequantize(),
            rtol=2e-7,
            err_msg=name,
        )


@pytest.mark.full
def test_names_of_the_1bitllm_reproductions(tmp_path: Path) -> None:
    """They have their own class and sub-norm names, SiLU and no quantization_config: "bitnet"."""
    directory = model_directory("bitnet-masters", tmp_path)
    convert(directory, tmp_path / "b158.gguf", "tq2_0")
    renamed = {"attn_sub_norm": "inner_attn_ln", "ffn_sub_norm": "ffn_layernorm"}
    tensors = {}
    with SafeTensorsFile(directory / "model.safetensors") as file:
        for name in file.names():
            *before, last, weight = name.split(".")
            new = ".".join([*before, renamed.get(last, last), weight])
            tensors[new] = bfloat16(file.tensor(name).all_floats())
    write_safetensors(directory / "model.safetensors", tensors)
    changes = {"architectures": ["BitnetForCausalLM"], "hidden_act": "silu", "model_type": "llama"}
    edit_json(directory / "config.json", **changes, quantization_config=None)
    assert convert(directory, tmp_path / "bitnet.gguf", "tq2_0").architecture == "bitnet"
    ours, theirs = open_weights(tmp_path / "bitnet.gguf"), open_weights(tmp_path / "b158.gguf")
    assert ours.tensor_names() == theirs.tensor_names()
    for name in ours.tensor_names():
        np.testing.assert_array_equal(ours.tensor(name).data, theirs.tensor(name).data)
    with load(tmp_path / "bitnet.gguf") as model:
        tokens = golden("bitnet-masters").tokens
        expected = naive_logits(
            float_tensors(ours), ours.config, tokens, arch="bitnet", int8_activations=True
        )
        np.testing.assert_allclose(model.logits(tokens), expected, rtol=0, atol=2e-3)


def test_scale_that_multiplies_or_divides(tmp_path: Path) -> None:
    """--weight-scale overrides config.json, and the report mentions inverted scales."""
    directory = model_directory("bitnet-packed", tmp_path)
    edit_json(directory / "config.json", quantization_config={"quant_method": "bitnet"})
    wrong = convert(directory, tmp_path / "wrong.gguf", "i2_s")
    assert len(wrong.notes) == 1
    assert "look inverted" in wrong.notes[0]
    assert "--weight-scale multiply" in wrong.notes[0]
    right = convert(directory, tmp_path / "right.gguf", "i2_s", weight_scale="multiply")
    assert right.notes == ()
    expected = golden("bitnet-packed")
    with load(right.path) as model:
        np.testing.assert_allclose(model.logits(expected.tokens), expected.logits, atol=2e-3)


@pytest.mark.few(1)
@pytest.mark.parametrize("bias_rows", ["q_proj", "k_proj", "v_proj", "o_proj"])
def test_biases_go_with_their_weights(bias_rows: str, tmp_path: Path) -> None:
    """Biases of Q and K are permuted like their rows: the NumPy graph with halves agrees."""
    directory = model_directory("llama-grouped", tmp_path)
    rng = np.random.default_rng(1)
    tensors = {}
    with SafeTensorsFile(directory / "model.safetensors") as file:
        for name in file.names():
            tensor = file.tensor(name)
            tensors[name] = bfloat16(tensor.all_floats())
            if ".self_attn." in name:
                size = 1.0 if bias_rows in name else 0.0
                bias = (size * rng.standard_normal(tensor.shape[0])).astype(np.float32)
                tensors[name.replace(".weight", ".bias")] = bias
    write_safetensors(directory / "model.safetensors", tensors)
    edit_json(directory / "config.json", attention_bias=True)
    convert(directory, tmp_path / "model.gguf", "f32")
    weights = open_weights(tmp_path / "model.gguf")
    floats = float_tensors(weights)
    plain = dict(floats)
    config = weights.config
    for layer in range(config.num_layers):  # back to the order of halves
        for name, heads in (("attn_q", config.num_heads), ("attn_k", config.num_kv_heads)):
            for part in ("weight", "bias"):
                key = f"blk.{layer}.{name}.{part}"
                short = {"attn_q": "q", "attn_k": "k"}[name]
                source = f"model.layers.{layer}.self_attn.{short}_proj.{part}"
                original = tensors[source]
                if original.dtype == np.uint16:
                    original = (original.astype(np.uint32) << 16).view(np.float32)
                assert sorted(map(str, original)) == sorted(map(str, floats[key]))
                plain[key] = original
                rows = permuted(original, heads).reshape(original.shape)
                np.testing.assert_array_equal(rows, floats[key])
    tokens = golden("llama-grouped").tokens
    expected = naive_logits(
        plain, config, tokens, arch="llama", int8_activations=False, rope_interleaved=False
    )
    with load(tmp_path / "model.gguf") as model:
        np.testing.assert_allclose(model.logits(tokens), expected, rtol=0, atol=1e-3)


def test_output_copied_beside_tied_embeddings_is_dropped(tmp_path: Path) -> None:
    directory = model_directory("llama-grouped", tmp_path)
    tensors = {}
    with SafeTensorsFile(directory / "model.safetensors") as file:
        for name in file.names():
            tensors[name] = bfloat16(file.tensor(name).all_floats())
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(40, np.float32)
    write_safetensors(directory / "model.safetensors", tensors)
    convert(directory, tmp_path / "model.gguf", "f16")
    assert "output.weight" not in open_weights(tmp_path / "model.gguf").tensor_names()


def test_sliding_window_of_mistral(tmp_path: Path) -> None:
    """GGUF's llama has no window, so the context is limited to where it has no effect."""
    directory = model_directory("llama-sharded", tmp_path)
    changes = {"architectures": ["MistralForCausalLM"], "sliding_window": 16}
    edit_json(directory / "config.json", **changes)
    made = convert(directory, tmp_path / "model.gguf", "f32")
    assert (made.architecture, open_weights(made.path).config.context_length) == ("llama", 16)
    assert "window of 16 tokens" in made.notes[0]
    expected = golden("llama-sharded")
    with load(made.path) as model:
        np.testing.assert_allclose(model.logits(expected.tokens), expected.logits, atol=1e-3)


@pytest.mark.full
def test_name_of_the_model(tmp_path: Path) -> None:
    """The directory's name, or the name in Hugging Face's cache."""
    cached = tmp_path / "models--someone--Tiny-Llama" / "snapshots"
    cached.mkdir(parents=True)
    for directory, name in (
        (model_directory("llama-grouped", tmp_path), "llama-grouped"),
        (model_directory("llama-grouped", cached).rename(cached / "0123abcd"), "Tiny-Llama"),
    ):
        made = convert(f"{directory}/", tmp_path / f"{name}.gguf", "f16")
        assert open_weights(made.path).config.name == name


def test_progress_counts_up_to_the_whole(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    made = convert(
        model_directory("llama-sharded", tmp_path),
        tmp_path / "model.gguf",
        "f32",
        progress=lambda *step: seen.append(step),
    )
    done = [step[0] for step in seen]
    assert done[0] == 0
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1]
    assert [step[2] for step in seen[:-1]] == open_weights(made.path).tensor_names()
    assert made.num_bytes == (tmp_path / "model.gguf").stat().st_size


def test_index_of_the_golden_shards_is_used(tmp_path: Path) -> None:
    """The sharded golden really is in two files."""
    directory = model_directory("llama-sharded", tmp_path)
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 2
