"""Directories of quantized layouts give the logits of their dequantized values."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trinity
from tests.formats.huggingface.layouts import E4M3, LAYOUTS, Floats
from tests.formats.raw_safetensors import write_safetensors
from tests.matrix import some
from tests.providers.test_directory import check_answers
from tests.tools.golden_models import FOLDER
from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.providers import open_weights
from trinity.tools.convert import convert
from trinity_kernels.isa import available_levels

VOCAB = 283  # of the tokenizer
SIZES = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "vocab_size": VOCAB,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}  # fmt: skip
LLAMA = {**SIZES, "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu"}  # fmt: skip
EXPERTS = {**SIZES, "architectures": ["Qwen3MoeForCausalLM"], "max_position_embeddings": 64,
           "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
           "norm_topk_prob": True, "tie_word_embeddings": False, "hidden_act": "silu",
           "rms_norm_eps": 1e-5}  # fmt: skip
IDS = [3, 17, 60, 2, 95, 41, 8, 33, 72]
HIDDEN, WIDTH = 128, 192


def modules(values: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Name, rows and columns of the layers' quantized matrices."""
    found = []
    for layer in range(2):
        base = f"model.layers.{layer}."
        attention = [("q", 128, HIDDEN), ("k", 64, HIDDEN), ("v", 64, HIDDEN), ("o", HIDDEN, 128)]
        found += [(f"{base}self_attn.{n}_proj", rows, columns) for n, rows, columns in attention]
        places = [("mlp.", WIDTH)]
        if "num_experts" in values:
            places = [(f"mlp.experts.{expert}.", 64) for expert in range(4)]
        for place, width in places:
            found += [(f"{base}{place}{n}_proj", width, HIDDEN) for n in ("gate", "up")]
            found.append((f"{base}{place}down_proj", HIDDEN, width))
    return found


def directories(values: dict[str, Any], layout: str, parent: Path) -> tuple[Path, Path]:
    """A model in a layout, and the same in float32."""
    rng = np.random.default_rng(11)
    config, make = LAYOUTS[layout]
    plain: dict[str, Any] = {}
    # Logits of a standard deviation of 3, as the golden models have them.
    for name, spread in (("model.embed_tokens", 1), ("lm_head", 3 / HIDDEN**0.5)):
        drawn = rng.standard_normal((VOCAB, HIDDEN)) * spread
        plain[f"{name}.weight"] = drawn.astype(np.float32)
    plain["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    for layer in range(2):
        base = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            plain[f"{base}{norm}.weight"] = rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
        if "num_experts" in values:
            plain[f"{base}mlp.gate.weight"] = rng.standard_normal((4, HIDDEN)).astype(np.float32)
            for norm in ("q_norm", "k_norm"):
                plain[f"{base}self_attn.{norm}.weight"] = np.ones(32, np.float32)
    quantized, wide, dtypes = dict(plain), dict(plain), {}
    for module, rows, columns in modules(values):
        weight = make(rng, rows, columns)
        quantized |= {f"{module}.{end}": tensor for end, tensor in weight.tensors.items()}
        dtypes |= {f"{module}.{end}": dtype for end, dtype in weight.dtypes.items()}
        wide[f"{module}.weight"] = weight.values
    folders = parent / "quantized", parent / "wide"
    for folder, tensors, more in zip(folders, (quantized, wide), (config, None), strict=True):
        folder.mkdir()
        for path in (FOLDER / "llama-grouped").glob("tokenizer*"):
            shutil.copy(path, folder)
        write_safetensors(folder / "model.safetensors", tensors, dtypes if more else None)
        told = values if more is None else {**values, "quantization_config": more}
        (folder / "config.json").write_text(json.dumps(told))
    return folders


def logits(folder: Path, level: str | None) -> Floats:
    with trinity.load(folder, isa=level, kv_type="f32", context_length=32) as model:
        return model.logits(IDS)


@pytest.mark.full
@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_are_those_of_the_values(layout: str, level: str, tmp_path: Path) -> None:
    quantized, wide = directories(LLAMA, layout, tmp_path)
    found, expected = logits(quantized, level), logits(wide, level)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", ["fp8", "modelopt-nvfp4", "awq", "gptq-8"])
def test_experts_of_quantized_layouts(layout: str, tmp_path: Path) -> None:
    quantized, wide = directories(EXPERTS, layout, tmp_path)
    np.testing.assert_allclose(logits(quantized, None), logits(wide, None), rtol=0, atol=1e-3)


@pytest.mark.few(1)
@pytest.mark.parametrize("level", available_levels())
def test_answers_of_transformers(level: str, shared_data: Path) -> None:
    check_answers(shared_data / "formats" / "hf" / "llama-fp8-block128", level)


def test_dequantized_weights_are_those_of_transformers(shared_data: Path) -> None:
    """The reference is q_proj, dequantized by transformers."""
    folder = shared_data / "formats" / "hf" / "llama-fp8-block128"
    expected = np.load(folder / "dequant" / "model.layers.0.self_attn.q_proj.weight.npy")
    with closing(open_weights(folder)) as provider:
        found = provider.tensor("blk.0.attn_q.weight").dequantize()
    np.testing.assert_array_equal(found[: len(expected)], expected)


@pytest.mark.full
def test_what_modelopt_says_in_its_own_file(tmp_path: Path) -> None:
    quantized, wide = directories(LLAMA, "modelopt-nvfp4", tmp_path)
    (quantized / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises((FormatError, UnsupportedError)):
        open_weights(quantized)
    own = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}
    (quantized / "hf_quant_config.json").write_text(json.dumps(own))
    np.testing.assert_allclose(logits(quantized, None), logits(wide, None), rtol=0, atol=1e-3)


@pytest.mark.full
def test_scales_of_all_drawnare_tensors_of_their_own(tmp_path: Path) -> None:
    """As GGUF has them for NVFP4; of experts one tensor for all."""
    quantized, _ = directories(EXPERTS, "ct-nvfp4", tmp_path)
    with closing(open_weights(quantized)) as provider:
        shapes = {n: provider.tensor(n).shape for n in provider.tensor_names() if "scale" in n}
        weight = provider.tensor("blk.1.ffn_up_exps.2.weight")
        scale = provider.tensor("blk.1.ffn_up_exps.scale").dequantize()[2]
    assert shapes["blk.0.attn_q.scale"] == (1,)
    assert shapes["blk.1.ffn_up_exps.scale"] == (4,)
    assert weight.type == "NVFP4"
    assert scale > 0


@pytest.mark.parametrize(
    "method",
    some(
        ["bitsandbytes", "hqq", "eetq", "torchao", "fbgemm_fp8", "quanto", "aqlm"], ["bitsandbytes"]
    ),
)
def test_other_methods_are_refused_by_name(method: str, tmp_path: Path) -> None:
    _, wide = directories(LLAMA, "fp8", tmp_path)
    config = {**LLAMA, "quantization_config": {"quant_method": method}}
    (wide / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match=f"{method}.*awq, compressed-tensors, fp8, gptq"):
        open_weights(wide)


def test_codes_without_a_quantization_config(tmp_path: Path) -> None:
    quantized, _ = directories(LLAMA, "fp8", tmp_path)
    (quantized / "config.json").write_text(json.dumps(LLAMA))
    with pytest.raises((FormatError, UnsupportedError), match=r"scale_inv|F8_E4M3"):
        open_weights(quantized)


def test_tied_embeddings_may_be_quantized(tmp_path: Path) -> None:
    """Embeddings and output use the same quantized codes."""
    quantized, wide = directories({**LLAMA, "tie_word_embeddings": True}, "fp8", tmp_path)
    codes = np.random.default_rng(2).integers(0, 100, (VOCAB, HIDDEN)).astype(np.uint8)
    scale = np.full((-(-VOCAB // 128), 1), 0.03, np.float32)
    name = "model.embed_tokens.weight"
    for folder in (quantized, wide):
        values = E4M3[codes] * scale[0, 0]
        if folder == quantized:
            add = {name: codes, f"{name}_scale_inv": scale}
        else:
            add = {name: values}
        rewrite(folder / "model.safetensors", add, {name: "F8_E4M3"} if len(add) > 1 else {})
    np.testing.assert_allclose(logits(quantized, None), logits(wide, None), rtol=0, atol=1e-3)


def rewrite(path: Path, add: dict[str, Any], dtypes: dict[str, str]) -> None:
    """A file with other tensors in place of its output's and embedding's weights."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    tensors: dict[str, Any] = {}
    for name, entry in header.items():
        if name in ("__metadata__", "lm_head.weight", "model.embed_tokens.weight"):
            continue
        begin, end = entry["data_offsets"]
        kinds = {"F32": "<f4", "F8_E4M3": "u1", "BF16": "<u2"}
        found = np.frombuffer(raw, np.uint8)[8 + length + begin : 8 + length + end]
        tensors[name] = found.view(kinds[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "F8_E4M3":
            dtypes = {**dtypes, name: "F8_E4M3"}
    write_safetensors(path, tensors | add, dtypes)


@pytest.mark.parametrize(
    ("layout", "outtype", "type_name"),
    [("modelopt-nvfp4", "bf16", "NVFP4"), ("ct-nvfp4", "bf16", "NVFP4"),
     ("ct-mxfp4", "bf16", "MXFP4"), ("awq", "f32", "F32")],
)  # fmt: skip
def test_convert_keeps_the_values(
    layout: str, outtype: str, type_name: str, tmp_path: Path
) -> None:
    quantized, wide = directories(LLAMA, layout, tmp_path)
    convert(quantized, tmp_path / "m.gguf", outtype)
    name = "blk.1.ffn_down"
    with (
        closing(open_weights(tmp_path / "m.gguf")) as written,
        closing(open_weights(wide)) as plain,
    ):
        tensor = written.tensor(f"{name}.weight")
        found = tensor.dequantize()
        if f"{name}.scale" in written.tensor_names():
            found = found * written.tensor(f"{name}.scale").dequantize()
        assert tensor.type == type_name
        np.testing.assert_array_equal(found, plain.tensor(f"{name}.weight").dequantize())


@pytest.mark.parametrize("layout", ["fp8", "gptq"])
def test_convert_does_not_quantize_twice_unasked(layout: str, tmp_path: Path) -> None:
    quantized, _ = directories(LLAMA, layout, tmp_path)
    with pytest.raises(InputError, match="--allow-requantize"):
        convert(quantized, tmp_path / "m.gguf", "q8_0")
