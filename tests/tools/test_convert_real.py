"""A trained llama converted to a directory and back gives llama.cpp's bytes.

stories260K.gguf and its Q8_0 were written by llama.cpp's own converter and quantizer.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.raw_safetensors import write_safetensors
from trinity.formats import GGUFProvider
from trinity.loading import load
from trinity.model import Model
from trinity.tokenizers.spm import _bytes, _number, _piece
from trinity.tools.convert import convert

MODULES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
}
HEADS = {"attn_q": 8, "attn_k": 4}


def halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows from neighbouring pairs back to halves: the inverse of llama.cpp's permute."""
    rows, columns = values.shape
    return values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, -1)


def hugging_face_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, layer, short, part = name.split(".")
    return f"model.layers.{layer}.{MODULES[short]}.{part}"


@pytest.fixture(scope="module")
def directory(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a directory of Hugging Face's."""
    folder = tmp_path_factory.mktemp("stories260K")
    tensors: dict[str, np.ndarray] = {}
    metadata: dict[str, Any]
    with GGUFProvider(shared_data / "models" / "stories260K.gguf") as provider:
        metadata = dict(provider.metadata)
        for name in provider.tensor_names():
            values = provider.tensor(name).dequantize()
            short = name.split(".")[2] if name.startswith("blk.") else ""
            if short in HEADS:
                values = halves(values, HEADS[short])
            tensors[hugging_face_name(name)] = values
    write_safetensors(folder / "model.safetensors", tensors)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 64,
        "intermediate_size": 172,
        "num_hidden_layers": 5,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 512,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    pieces = [
        _piece(token, struct.pack("<f", score), int(kind))
        for token, score, kind in zip(
            *(metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type")),
            strict=True,
        )
    ]
    trainer, normalizer = _number(3, 2) + _number(35, 1), _bytes(1, b"identity") + _number(4, 0)
    model = b"".join(pieces) + _bytes(2, trainer) + _bytes(3, normalizer)
    (folder / "tokenizer.model").write_bytes(model)
    return folder


@pytest.mark.parametrize(
    ("outtype", "reference"), [("f32", "stories260K.gguf"), ("q8_0", "stories260K-Q8_0.gguf")]
)
def test_every_tensor_is_llama_cpps(
    outtype: str, reference: str, directory: Path, shared_data: Path, tmp_path: Path
) -> None:
    """Bits and types are equal: rows of 172 are F16 in both Q8_0 files."""
    convert(directory, tmp_path / "model.gguf", outtype)
    ours = GGUFProvider(tmp_path / "model.gguf")
    theirs = GGUFProvider(shared_data / "models" / reference)
    assert sorted(ours.tensor_names()) == sorted(theirs.tensor_names())
    for name in theirs.tensor_names():
        one, other = ours.tensor(name), theirs.tensor(name)
        assert (one.type, one.shape) == (other.type, other.shape), name
        np.testing.assert_array_equal(one.data, other.data, err_msg=name)
    for key in ("tokens", "scores", "token_type", "bos_token_id", "eos_token_id"):
        np.testing.assert_array_equal(
            ours.metadata[f"tokenizer.ggml.{key}"], theirs.metadata[f"tokenizer.ggml.{key}"]
        )


def test_it_tells_the_golden_story(directory: Path, shared_data: Path, tmp_path: Path) -> None:
    golden = json.loads((shared_data / "models" / "golden.json").read_text())["stories260K"]
    made = convert(directory, tmp_path / "model.gguf", "f32")
    with load(made.path) as model:
        answer = model.generate(
            golden["prompt_ids"], max_tokens=len(golden["greedy_ids"]), temperature=0
        )
        assert answer.token_ids == golden["greedy_ids"]


def negative_log_likelihood(model: Model, tokens: list[int]) -> float:
    """The mean over the tokens after the first, in nats."""
    logits = model.logits(tokens)[:-1].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(-logits[np.arange(len(tokens) - 1), tokens[1:]].mean())


@pytest.mark.full
def test_q8_0_hardly_changes_perplexity(directory: Path, shared_data: Path, tmp_path: Path) -> None:
    """Perplexity is within 0.5% of F32's over 2,000 tokens of another kind of text."""
    text = (shared_data / "text" / "war-and-peace.txt").read_text("utf-8")[100_000:110_000]
    means = []
    for outtype in ("f32", "q8_0"):
        made = convert(directory, tmp_path / f"{outtype}.gguf", outtype)
        with load(made.path) as model:
            tokens = model.tokenize(text, add_bos=False)[: 16 * 127]
            windows = [[1, *tokens[i : i + 127]] for i in range(0, len(tokens), 127)]
            means.append(np.mean([negative_log_likelihood(model, w) for w in windows]))
    exact, rounded = np.exp(means)
    assert abs(rounded / exact - 1) < 0.005
