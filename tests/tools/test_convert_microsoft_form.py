"""A directory like BitNet b1.58 2B-4T's gives the keys and tensors of Microsoft's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.models.make_synthetic import SHAPES, write_model
from tests.formats.raw_safetensors import bfloat16, write_safetensors
from tests.tokenizers.huggingface.directories import write_real
from tests.tools.golden_models import edit_json, model_directory
from trinity.formats import GGUFProvider
from trinity.loading import load
from trinity.tools.convert import convert

# 30 layers, the heads' ratio and the key names of the real model; narrow, to be quick.
SHAPE = replace(
    SHAPES["bitnet-2b"],
    name="bitnet2b",
    hidden_size=128,
    intermediate_size=256,
    num_heads=4,
    num_kv_heads=1,
    head_dim=32,
    vocab_size=283,
)


def directory_of(form: str, parent: Path, vocab_size: int = SHAPE.vocab_size) -> Path:
    """A directory with random weights of SHAPE, "packed" or as "masters"."""
    rng = np.random.default_rng(0)
    directory = model_directory("bitnet-packed", parent / "source")
    directory = directory.rename(directory.with_name("bitnet2b"))
    hidden, ffn = SHAPE.hidden_size, SHAPE.intermediate_size
    tensors: dict[str, np.ndarray] = {}

    def floats(name: str, *shape: int) -> None:
        values = rng.standard_normal(shape, np.float32) * np.float32(hidden**-0.5)
        tensors[name] = bfloat16(values + 1 if len(shape) == 1 else values)

    floats("model.embed_tokens.weight", vocab_size, hidden)
    for layer in range(SHAPE.num_layers):
        prefix = f"model.layers.{layer}."
        for norm, size in (
            ("input_layernorm", hidden),
            ("post_attention_layernorm", hidden),
            ("self_attn.attn_sub_norm", hidden),
            ("mlp.ffn_sub_norm", ffn),
        ):
            floats(f"{prefix}{norm}.weight", size)
        kv = SHAPE.num_kv_heads * SHAPE.head_dim
        for name, rows, columns in (
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", ffn, hidden),
            ("mlp.up_proj", ffn, hidden),
            ("mlp.down_proj", hidden, ffn),
        ):
            if form == "masters":
                floats(f"{prefix}{name}.weight", rows, columns)
                continue
            codes = rng.integers(0, 3, (4, rows // 4, columns), np.uint8)
            packed = codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6
            tensors[f"{prefix}{name}.weight"] = packed
            tensors[f"{prefix}{name}.weight_scale"] = np.full(1, 0.125, np.float32)
    floats("model.norm.weight", hidden)
    write_safetensors(directory / "model.safetensors", tensors)
    edit_json(
        directory / "config.json",
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=SHAPE.num_layers,
        num_attention_heads=SHAPE.num_heads,
        num_key_value_heads=SHAPE.num_kv_heads,
        quantization_config={
            "quant_method": "bitnet",
            "linear_class": "autobitlinear",
            "quantization_mode": "online" if form == "masters" else "offline",
        },
    )
    return directory


def form_of(path: Path) -> tuple[list[tuple[str, str]], list[tuple[str, tuple[int, ...], str]]]:
    """Keys with their value types, and names, shapes and types of the tensors, in file order."""
    with GGUFProvider(path) as provider:
        keys = [(key, provider.metadata.value_type(key)) for key in provider.metadata]
        tensors = [provider.tensor(name) for name in provider.tensor_names()]
        return keys, [(t.name, t.shape, t.type) for t in tensors]


@pytest.mark.parametrize("form", ["packed", "masters"])
def test_keys_and_tensors(form: str, tmp_path: Path) -> None:
    """All equal the file's, plus tokenizer.ggml.pre, without which other engines split wrongly."""
    convert(directory_of(form, tmp_path), tmp_path / "converted.gguf", "i2_s")
    write_model(tmp_path / "like-microsofts.gguf", SHAPE)
    keys, tensors = form_of(tmp_path / "converted.gguf")
    expected_keys, expected_tensors = form_of(tmp_path / "like-microsofts.gguf")
    assert keys.index(("tokenizer.ggml.pre", "string")) == 15
    keys.remove(("tokenizer.ggml.pre", "string"))
    assert keys == expected_keys
    assert tensors == expected_tensors
    assert (len(keys), len(tensors)) == (24, 332)
    types = [kind for _, _, kind in tensors]
    assert {kind: types.count(kind) for kind in types} == {"F16": 1, "F32": 121, "I2_S": 210}


@pytest.mark.full
def test_with_the_real_vocabulary(shared_data: Path, tmp_path: Path) -> None:
    """The keys have the real file's values, and the model answers a chat."""
    directory = directory_of("packed", tmp_path, vocab_size=128_256)
    real: dict[str, Any]
    with GGUFProvider(shared_data / "vocab" / "ggml-vocab-llama-bpe.gguf") as provider:
        real = dict(provider.metadata)
    write_real(directory, "llama-bpe", real)
    (directory / "generation_config.json").write_text('{"eos_token_id": [128001, 128009]}')
    (directory / "chat_template.jinja").write_text("{{ messages[0]['content'] }}: ")
    edit_json(directory / "config.json", pad_token_id=128001)
    convert(directory, tmp_path / "model.gguf", "i2_s")
    with GGUFProvider(tmp_path / "model.gguf") as provider:
        values = dict(provider.metadata)
    tokenizer = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in values.items()
        if key.startswith("tokenizer.ggml.")
    }
    assert len(values) == 25
    assert len(tokenizer["tokens"]) == len(tokenizer["scores"]) == 128_256
    assert len(tokenizer["merges"]) == 280_147
    assert (tokenizer["model"], tokenizer["pre"]) == ("gpt2", "llama-bpe")
    assert tokenizer["bos_token_id"] == 128000
    assert tokenizer["eos_token_id"] == tokenizer["padding_token_id"] == 128001
    assert values["general.architecture"] == "bitnet-b1.58"
    assert values["general.name"] == "bitnet2b"
    assert values["general.file_type"] == 40
    assert values["bitnet-b1.58.rope.freq_base"] == 500_000
    assert values["bitnet-b1.58.attention.layer_norm_rms_epsilon"] == np.float32(1e-5)
    with load(tmp_path / "model.gguf") as model:
        assert model.tokenizer.eog_ids >= {128001, 128009}
        answer = model.chat([{"role": "user", "content": "Hello"}], max_tokens=4)
        assert answer.prompt_tokens == len(model.tokenize("Hello: ", parse_special=True))
