"""Small random models of the families beyond llama, the same for ever.

Their weights are drawn, not stored: ``scripts/family_goldens.py`` lets another library compute the
logits, which are all that tests/data needs.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.tiny_models import sentencepiece_vocabulary
from trinity.formats import GGUFWriter

Tensors = dict[str, NDArray[np.float32]]
PROMPT = [1, 300, 17, 263, 301, 5, 260, 300, 333, 44, 290, 282]  # crosses the window
HEADS, KV_HEADS, HEAD_DIM, HIDDEN, FFN = 4, 2, 24, 64, 96
EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Family:
    """What differs from family to family."""

    layers: int = 2
    head_dim: int = HEAD_DIM
    biases: bool = False
    head_norms: bool = False
    norms_behind: bool = False
    fused: bool = False
    keys: dict[str, object] = field(default_factory=dict)
    factors: tuple[float, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """A layer's weights."""
        q, kv = HEADS * self.head_dim, KV_HEADS * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
        if self.fused:
            shapes |= {"attn_qkv": (q + 2 * kv, HIDDEN), "ffn_up": (2 * FFN, HIDDEN)}
        else:
            shapes |= {"attn_q": (q, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN)}
            shapes |= {"ffn_up": (FFN, HIDDEN), "ffn_gate": (FFN, HIDDEN)}
        shapes |= {"attn_output": (HIDDEN, q), "ffn_down": (HIDDEN, FFN)}
        if self.head_norms:
            shapes |= {f"attn_{name}_norm": (self.head_dim,) for name in "qk"}
        if self.norms_behind:
            shapes |= {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)}
        return shapes


FAMILIES = {
    "qwen2": Family(head_dim=16, biases=True, keys={"rope.freq_base": 1e6}),
    "qwen3": Family(head_norms=True, keys={"rope.freq_base": 1e6}),
    "gemma3": Family(
        layers=7, head_norms=True, norms_behind=True,
        keys={"rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window": 4},
    ),
    "phi3": Family(
        head_dim=16, fused=True, factors=(1.0, 1.2, 1.5, 2.0, 3.0, 4.5),
        keys={"rope.freq_base": 1e4, "rope.dimension_count": 12, "context_length": 64,
              "rope.scaling.original_context_length": 8,
              "rope.scaling.attn_factor": (1 + np.log(64 / 8) / np.log(8)) ** 0.5},
    ),
}  # fmt: skip


def tensors_of(name: str) -> Tensors:
    """The float32 tensors under GGUF's names."""
    family = FAMILIES[name]
    rng = np.random.RandomState(zlib.crc32(name.encode()))  # its numbers never change

    def draw(shape: tuple[int, ...]) -> NDArray[np.float32]:
        one = len(shape) == 1
        values = 1 + 0.2 * rng.standard_normal(shape) if one else rng.standard_normal(shape) / 8
        return values.astype(np.float32)

    vocabulary = len(sentencepiece_vocabulary()[0])
    tensors = {
        "token_embd.weight": draw((vocabulary, HIDDEN)),
        "output_norm.weight": draw((HIDDEN,)),
    }
    for layer in range(family.layers):
        for part, shape in family.shapes.items():
            tensors[f"blk.{layer}.{part}.weight"] = draw(shape)
            if family.biases and part in ("attn_q", "attn_k", "attn_v"):
                tensors[f"blk.{layer}.{part}.bias"] = draw(shape[:1]) - np.float32(1)
    return tensors


def write_family_model(path: str | os.PathLike[str], name: str) -> None:
    """Write the model as GGUF."""
    family = FAMILIES[name]
    tokens, scores, types = sentencepiece_vocabulary()
    keys: dict[str, object] = {
        "vocab_size": len(tokens), "context_length": 64, "embedding_length": HIDDEN,
        "block_count": family.layers, "feed_forward_length": FFN,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": family.head_dim, "attention.value_length": family.head_dim,
        "attention.layer_norm_rms_epsilon": EPS, "rope.dimension_count": family.head_dim,
        **family.keys,
    }  # fmt: skip
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", name)
        for key, value in keys.items():
            writer.add(f"{name}.{key}", value)
        for key, value in {
            "model": "llama", "tokens": tokens, "scores": np.array(scores, np.float32),
            "token_type": np.array(types, np.int32), "bos_token_id": 1, "eos_token_id": 2,
        }.items():  # fmt: skip
            writer.add(f"tokenizer.ggml.{key}", value)
        for tensor, values in tensors_of(name).items():
            writer.add_tensor(tensor, values.shape, "F32", values.reshape(-1).view(np.uint8))
        if family.factors:
            for kind, factors in (
                ("long", family.factors),
                ("short", (1.0,) * len(family.factors)),
            ):
                values = np.array(factors, np.float32)
                writer.add_tensor(
                    f"rope_factors_{kind}.weight", values.shape, "F32", values.view(np.uint8)
                )
