"""Write a Hugging Face or MLX directory with random weights, to measure speed with.

    python scripts/models/make_directory.py llama-1b build/llama-1b-bf16
    python scripts/models/make_directory.py llama-1b build/mlx4 --form mlx --bits 4 --group 64

The shapes are make_synthetic.py's of the llama family, with tied embeddings. Tokens are bytes. The
text that such a model writes is meaningless.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.models.make_synthetic import SHAPES, Shape, byte_characters  # noqa: E402

CHUNK_ELEMENTS = 1 << 22
_BYTES = {"BF16": 2, "U32": 4}


@dataclass(frozen=True)
class Entry:
    """A tensor of the file; its values have the standard deviation ``rms`` around ``mean``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rms: float = 0.0
    mean: float = 0.0

    @property
    def nbytes(self) -> int:
        """The tensor's bytes."""
        return _BYTES[self.dtype] * prod(self.shape)


def entries(shape: Shape, bits: int | None, group: int) -> Iterator[Entry]:
    """Return the model's tensors; with ``bits``, MLX's triples."""

    def linear(name: str, rows: int, columns: int, rms: float) -> Iterator[Entry]:
        if bits is None:
            yield Entry(f"{name}.weight", "BF16", (rows, columns), rms)
            return
        # Codes are uniform from 0 to top: their deviation is top / sqrt(12), their mean top / 2.
        top = (1 << bits) - 1
        scale = rms * sqrt(12) / top
        yield Entry(f"{name}.weight", "U32", (rows, columns * bits // 32))
        yield Entry(f"{name}.scales", "BF16", (rows, columns // group), 0.0, scale)
        yield Entry(f"{name}.biases", "BF16", (rows, columns // group), 0.0, -scale * top / 2)

    hidden, inner = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    yield from linear("model.embed_tokens", shape.vocab_size, hidden, 0.02)
    for layer in range(shape.num_layers):
        at = f"model.layers.{layer}."
        yield Entry(f"{at}input_layernorm.weight", "BF16", (hidden,), 0.0, 1.0)
        yield Entry(f"{at}post_attention_layernorm.weight", "BF16", (hidden,), 0.0, 1.0)
        for name, rows, columns in (
            ("self_attn.q_proj", q, hidden), ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, q),
            ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):  # fmt: skip
            yield from linear(f"{at}{name}", rows, columns, 1 / sqrt(columns))
    yield Entry("model.norm.weight", "BF16", (hidden,), 0.0, 1.0)


def pieces(entry: Entry, rng: np.random.Generator) -> Iterator[NDArray[np.generic]]:
    """Yield a tensor's values in order."""
    left = prod(entry.shape)
    while left:
        count = min(left, CHUNK_ELEMENTS)
        left -= count
        if entry.dtype == "U32":
            yield rng.integers(0, 1 << 32, count, np.uint32)
            continue
        values = np.full(count, entry.mean, np.float32)
        if entry.rms:
            values += (rng.random(count, np.float32) * 2 - 1) * np.float32(entry.rms * sqrt(3))
        yield (values.view(np.uint32) >> 16).astype("<u2")


def byte_tokenizer() -> dict[str, object]:
    """Return a tokenizer.json whose tokens are the bytes, BOS and EOS."""
    special = [
        {"id": 256 + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, name in enumerate(("<|begin_of_text|>", "<|end_of_text|>"))
    ]  # fmt: skip
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(byte_characters())},
                  "merges": []},
    }  # fmt: skip


def write_directory(
    shape: Shape, folder: Path, *, bits: int | None = None, group: int = 64, seed: int = 0
) -> None:
    """Write config.json, tokenizer.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": shape.hidden_size, "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers, "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads, "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size, "max_position_embeddings": shape.context_length,
        "rms_norm_eps": 1e-5, "rope_theta": shape.rope_theta, "tie_word_embeddings": True,
        "bos_token_id": 256, "eos_token_id": 257, "torch_dtype": "bfloat16",
    }  # fmt: skip
    if bits is not None:
        config["quantization"] = {"group_size": group, "bits": bits, "mode": "affine"}
    (folder / "config.json").write_text(json.dumps(config, indent=2), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), "utf-8")
    found = list(entries(shape, bits, group))
    header: dict[str, object] = {"__metadata__": {"format": "pt" if bits is None else "mlx"}}
    end = 0
    for entry in found:
        start, end = end, end + entry.nbytes
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": entry.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    rng = np.random.default_rng(seed)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in found:
            for piece in pieces(entry, rng):
                file.write(memoryview(piece).cast("B"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shapes = sorted(name for name, shape in SHAPES.items() if shape.arch == "llama")
    parser.add_argument("shape", choices=shapes)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--form", choices=("bf16", "mlx"), default="bf16")
    parser.add_argument("--bits", type=int, choices=(2, 3, 4, 5, 6, 8), default=4, help="of MLX's")
    parser.add_argument("--group", type=int, choices=(32, 64, 128), default=64, help="of MLX's")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    bits = given.bits if given.form == "mlx" else None
    write_directory(
        SHAPES[given.shape], given.folder, bits=bits, group=given.group, seed=given.seed
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
