"""Holds a ModelConfig against the shapes of the tensors that lie beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trinity.config import ModelConfig
from trinity.errors import ConfigError

_LAYER_TENSOR = re.compile(r"blk\.(\d{1,18})\.(.+)")


def check_shapes(config: ModelConfig, shapes: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Compare every tensor whose shape ``config`` implies; absent tensors are no error here.

    Raises ConfigError that names the tensor, its shape and the expected one.
    """
    layer_shapes = _layer_shapes(config)
    model_shapes = _model_shapes(config)
    for name, shape in shapes.items():
        match = _LAYER_TENSOR.fullmatch(name)
        if match is None:
            expected = model_shapes.get(name)
        else:
            expected = layer_shapes.get(match[2])
            if int(match[1]) >= config.num_layers:
                raise ConfigError(
                    f"{source}: the metadata says {config.num_layers} layers, but there is a "
                    f"tensor {name!r}; the file contradicts itself: convert the model again"
                )
        if expected is not None and shape != expected[0]:
            raise ConfigError(
                f"{source}: tensor {name!r} has shape {shape}, but the metadata implies "
                f"{expected[0]} ({expected[1]}); the file contradicts itself: convert the model "
                "again"
            )


_Expected = Mapping[str, tuple[tuple[int, ...], str]]


def _model_shapes(config: ModelConfig) -> _Expected:
    embedding = (
        (config.vocab_size, config.hidden_size),
        f"vocab_size {config.vocab_size}, hidden_size {config.hidden_size}",
    )
    return {
        "token_embd.weight": embedding,
        "output.weight": embedding,
        "output_norm.weight": ((config.hidden_size,), f"hidden_size {config.hidden_size}"),
        "rope_freqs.weight": ((config.rope_dim // 2,), f"half of rope_dim {config.rope_dim}"),
    }


def _layer_shapes(config: ModelConfig) -> _Expected:
    hidden, ffn = config.hidden_size, config.intermediate_size
    q_rows = config.num_heads * config.head_dim
    kv_rows = config.num_kv_heads * config.head_dim
    q = f"num_heads {config.num_heads} x head_dim {config.head_dim}, hidden_size {hidden}"
    kv = f"num_kv_heads {config.num_kv_heads} x head_dim {config.head_dim}, hidden_size {hidden}"
    gate = f"intermediate_size {ffn}, hidden_size {hidden}"
    return {
        "attn_q.weight": ((q_rows, hidden), q),
        "attn_k.weight": ((kv_rows, hidden), kv),
        "attn_v.weight": ((kv_rows, hidden), kv),
        "attn_output.weight": ((hidden, q_rows), q),
        "attn_norm.weight": ((hidden,), f"hidden_size {hidden}"),
        "attn_sub_norm.weight": ((q_rows,), q),
        "ffn_gate.weight": ((ffn, hidden), gate),
        "ffn_down.weight": ((hidden, ffn), gate),
        "ffn_norm.weight": ((hidden,), f"hidden_size {hidden}"),
        "ffn_sub_norm.weight": ((ffn,), gate),
    }
