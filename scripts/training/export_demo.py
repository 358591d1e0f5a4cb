"""Write the trained demo model as a GGUF file, and PyTorch's results to test trinity with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tokenizers
import torch
import torch.nn.functional as functional
from demo_network import EPS, BitNet, Recipe, ternary
from numpy.typing import NDArray
from torch import Tensor

from trinity.formats.gguf_writer import GGUFWriter
from trinity_kernels.quants import TYPES

ARCH = "bitnet-b1.58"
SAMPLE_CHARACTERS = 2000
SAMPLE_WINDOW = 128
LINEARS = {  # names in a file to places in the network
    "attn_q": "attn_in.weights.0",
    "attn_k": "attn_in.weights.1",
    "attn_v": "attn_in.weights.2",
    "attn_output": "attn_output.weights.0",
    "ffn_gate": "ffn_in.weights.0",
    "ffn_up": "ffn_in.weights.1",
    "ffn_down": "ffn_down.weights.0",
}
NORMS = ("attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm")


def as_written(model: BitNet) -> BitNet:
    """Return a copy with the embedding in half precision, as in a file, for evaluation."""
    copy = BitNet(model.recipe)
    copy.load_state_dict(model.state_dict())
    copy.token_embd.data = copy.token_embd.data.half().float()
    return copy.eval()


def tensors(model: BitNet) -> Iterator[tuple[str, str, NDArray[np.float32]]]:
    """Return name, type and values of every tensor, in file order."""
    state = {name: value.detach().float().cpu() for name, value in model.state_dict().items()}
    yield "token_embd.weight", "F16", state["token_embd"].numpy()
    for layer in range(model.recipe.num_layers):
        for name in NORMS:
            yield f"blk.{layer}.{name}.weight", "F32", state[f"layers.{layer}.{name}"].numpy()
        for name, place in LINEARS.items():
            codes, scale = ternary(state[f"layers.{layer}.{place}"])
            yield f"blk.{layer}.{name}.weight", "I2_S", (codes * scale).numpy()
    yield "output_norm.weight", "F32", state["output_norm"].numpy()


def metadata(recipe: Recipe, tokenizer: tokenizers.Tokenizer, bos: int) -> dict[str, object]:
    written = json.loads(tokenizer.to_str())
    ids = tokenizer.get_vocab(with_added_tokens=True)
    vocabulary = sorted(ids, key=ids.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in written["model"]["merges"]]
    special = {bos} | {token["id"] for token in written["added_tokens"]}
    head = recipe.hidden_size // recipe.num_heads
    return {
        "general.architecture": ARCH,
        "general.name": "trinity demo",
        "general.description": "A small BitNet b1.58 trained on War and Peace. See models.md.",
        "general.license": "apache-2.0",
        f"{ARCH}.vocab_size": len(vocabulary),
        f"{ARCH}.context_length": recipe.context,
        f"{ARCH}.embedding_length": recipe.hidden_size,
        f"{ARCH}.block_count": recipe.num_layers,
        f"{ARCH}.feed_forward_length": recipe.intermediate_size,
        f"{ARCH}.rope.dimension_count": head,
        f"{ARCH}.attention.head_count": recipe.num_heads,
        f"{ARCH}.attention.head_count_kv": recipe.num_kv_heads,
        f"{ARCH}.attention.layer_norm_rms_epsilon": EPS,
        f"{ARCH}.rope.freq_base": recipe.rope_theta,
        "general.file_type": 40,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.token_type": np.array(
            [3 if i in special else 1 for i in range(len(vocabulary))], np.int32
        ),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.eos_token_id": bos,
        "tokenizer.ggml.add_bos_token": True,
        "general.quantization_version": 2,
    }


def write_gguf(
    path: Path,
    model: BitNet,
    tokenizer: tokenizers.Tokenizer,
    bos: int,
    others: Mapping[str, object] | None = None,
) -> None:
    """``others``: metadata beside the demo model's, or instead of it."""
    with GGUFWriter(path) as writer:
        for key, value in (metadata(model.recipe, tokenizer, bos) | dict(others or {})).items():
            writer.add(key, value)
        for name, kind, values in tensors(model):
            data = TYPES[kind].quantize(values)
            if kind == "I2_S":
                assert np.array_equal(TYPES[kind].dequantize(data, values.shape), values), name
            writer.add_tensor(name, values.shape, kind, data)


@torch.no_grad()
def window_nlls(model: BitNet, tokens: Tensor, window: int, bos: int) -> Tensor:
    """Return negative log-likelihoods in nats (float32) of the second half of each window."""
    parts = []
    for start in range(0, len(tokens) // window * window, window):
        places = tokens[start : start + window].clone()
        places[0] = bos
        logits = model(places[None, :-1])[0]
        losses = functional.cross_entropy(logits.double(), places[1:], reduction="none")
        parts.append(losses[window // 2 :])
    return torch.cat(parts)


def write_reference(
    path: Path, model: BitNet, tokenizer: tokenizers.Tokenizer, held_out: str, bos: int
) -> None:
    """Write the beginning of the held-out text with PyTorch's value for each scored token."""
    text = held_out[:SAMPLE_CHARACTERS]
    tokens = torch.tensor([bos, *tokenizer.encode(text).ids])
    nlls = window_nlls(model, tokens, SAMPLE_WINDOW, bos)
    reference = {
        "made_by": "scripts/training/train_demo.py --reference: PyTorch, float32",
        "text": text,
        "token_ids": tokens.tolist(),
        "window": SAMPLE_WINDOW,
        "perplexity": math.exp(nlls.mean()),
        "nlls": [round(value, 6) for value in nlls.tolist()],
    }
    path.write_text(json.dumps(reference, ensure_ascii=False) + "\n", encoding="utf-8")
