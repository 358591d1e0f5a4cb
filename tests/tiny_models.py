"""Writes complete small GGUF models of any architecture and type, with a valid vocabulary."""

from __future__ import annotations

import os
import string
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scripts.models.make_synthetic import random_blocks
from trinity.formats.gguf_writer import GGUFWriter
from trinity_kernels.quantizers import WRITABLE, quantize_rows
from trinity_kernels.quants import TYPES

SPACE = "\u2581"
# Pieces that merge from shorter ones, best first, as SentencePiece's BPE needs them.
_MERGED = [
    f"{SPACE}t", "he", f"{SPACE}a", "in", f"{SPACE}the", "er", "on", f"{SPACE}s", "re", "nd",
    f"{SPACE}w", "or", "at", "en", f"{SPACE}and", "ing", "ed", "is", f"{SPACE}on", "ce",
    f"{SPACE}once", "ll", f"{SPACE}h", "lo", "llo", f"{SPACE}hello",
]  # fmt: skip
_CHARACTERS = [SPACE, *string.ascii_lowercase, *string.ascii_uppercase, *string.digits, *".,!?'-\n"]


def sentencepiece_vocabulary() -> tuple[list[str], list[float], list[int]]:
    """Return texts, scores and types of a vocabulary: special tokens, bytes, merges, characters.

    Types: 1 normal, 2 unknown, 3 control, 6 byte.
    """
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3] + [6] * 256
    pieces = [*_MERGED, *_CHARACTERS]
    tokens += pieces
    types += [1] * len(pieces)
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces))]
    return tokens, scores, types


def encoded(kind: str, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Encode values in a type; random blocks for types without an encoder here."""
    quant = TYPES[kind]
    if quant.encode_blocks:
        return quant.quantize(values)
    if kind in WRITABLE:
        return quantize_rows(kind, values).reshape(-1)
    rng = np.random.default_rng(values.size)
    rms = float(np.sqrt(np.square(values).mean()))
    blocks = random_blocks(quant, values.size // quant.block_size, rms, rng)
    return np.frombuffer(blocks, np.uint8)


def write_tiny_model(
    path: str | os.PathLike[str],
    *,
    arch: str = "llama",
    type: str = "F32",
    seed: int = 0,
    num_layers: int = 2,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int | None = None,
    context_length: int = 256,
    rope_theta: float = 10000.0,
    tied: bool = True,
    embedding_type: str | None = None,
    output_type: str | None = None,
    vocab: str = "bytes",
    vocab_size: int = 0,
    rope_freqs: bool = False,
    bias: bool = False,
    qk_norm: bool = False,
    scale_tensors: bool = False,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Write a random model whose layers' linears have ``type``.

    Sizes default to one or two blocks of the type. ``embedding_type`` defaults to ``type`` if rows
    fit its blocks, or F16 for ternary models; ``output_type``, the type of an untied head, to
    ``embedding_type``. ``vocab``: "bytes" (SentencePiece with byte fallback) or "none".
    ``vocab_size`` is the least number of tokens; unused ones are added.
    ``metadata`` is added to the file's keys, and replaces those of the same name.
    """
    quant = TYPES[type]
    hidden_size = hidden_size or max(64, quant.block_size)
    intermediate_size = intermediate_size or 2 * hidden_size
    head_dim = head_dim or hidden_size // num_heads
    embedding_type = embedding_type or ("F16" if quant.ternary else type)
    tokens, scores, types = sentencepiece_vocabulary()
    for number in range(len(tokens), vocab_size):
        tokens.append(f"<unused{number}>")
        scores.append(-float(number))
        types.append(5)
    keys: dict[str, object] = {
        "general.architecture": arch,
        "general.name": f"tiny-{arch}-{type}",
        f"{arch}.vocab_size": len(tokens),
        f"{arch}.context_length": context_length,
        f"{arch}.embedding_length": hidden_size,
        f"{arch}.block_count": num_layers,
        f"{arch}.feed_forward_length": intermediate_size,
        f"{arch}.attention.head_count": num_heads,
        f"{arch}.attention.head_count_kv": num_kv_heads,
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.dimension_count": head_dim,
        f"{arch}.rope.freq_base": rope_theta,
    }
    if vocab == "bytes":
        keys |= {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.array(scores, np.float32),
            "tokenizer.ggml.token_type": np.array(types, np.int32),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_bos_token": True,
        }
    elif vocab != "none":
        raise ValueError(f'vocab is {vocab!r}; "bytes" and "none" exist')
    weights = _RandomWeights(seed)
    with GGUFWriter(path) as writer:
        for key, value in (keys | dict(metadata or {})).items():
            writer.add(key, value)

        def add(name: str, kind: str, values: NDArray[np.float32]) -> None:
            # Files use the same name for both layouts of I2_S.
            file_type = "I2_S" if kind == "I2_S_ARM" else kind
            writer.add_tensor(name, values.shape, file_type, encoded(kind, values))

        count = len(tokens)
        add("token_embd.weight", embedding_type, weights.linear(count, hidden_size, False))
        add("output_norm.weight", "F32", weights.norm(hidden_size))
        if not tied:
            head = weights.linear(count, hidden_size, False)
            add("output.weight", output_type or embedding_type, head)
        if rope_freqs:
            factors = np.geomspace(1, 8, head_dim // 2).astype(np.float32)
            add("rope_freqs.weight", "F32", factors)
        attn, kv = num_heads * head_dim, num_kv_heads * head_dim
        linears = {
            "attn_q": (attn, hidden_size),
            "attn_k": (kv, hidden_size),
            "attn_v": (kv, hidden_size),
            "attn_output": (hidden_size, attn),
            "ffn_gate": (intermediate_size, hidden_size),
            "ffn_up": (intermediate_size, hidden_size),
            "ffn_down": (hidden_size, intermediate_size),
        }
        norms = {"attn_norm": hidden_size, "ffn_norm": hidden_size}
        if arch.startswith("bitnet"):
            norms |= {"attn_sub_norm": attn, "ffn_sub_norm": intermediate_size}
        if qk_norm:
            norms |= {"attn_q_norm": head_dim, "attn_k_norm": head_dim}
        for layer in range(num_layers):
            prefix = f"blk.{layer}."
            for name, size in norms.items():
                add(f"{prefix}{name}.weight", "F32", weights.norm(size))
            for name, (rows, columns) in linears.items():
                values = weights.linear(rows, columns, quant.ternary)
                add(f"{prefix}{name}.weight", type, values)
                if bias:
                    add(f"{prefix}{name}.bias", "F32", weights.norm(rows) - np.float32(1))
                if scale_tensors:
                    add(f"{prefix}{name}.scale", "F32", weights.norm(1))


class _RandomWeights:
    """Draws values that keep activations near unit size."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def norm(self, size: int) -> NDArray[np.float32]:
        return (1 + 0.1 * self._rng.standard_normal(size)).astype(np.float32)

    def linear(self, rows: int, columns: int, ternary: bool) -> NDArray[np.float32]:
        size = 1 / np.sqrt(columns)
        if ternary:
            # Half precision holds this scale exactly, so all ternary types give the same model.
            scale = np.float32(np.float16(size * np.sqrt(1.5)))
            values = self._rng.integers(-1, 2, (rows, columns)) * scale
        else:
            values = self._rng.standard_normal((rows, columns)) * size
        floats: NDArray[np.float32] = values.astype(np.float32)
        return floats
