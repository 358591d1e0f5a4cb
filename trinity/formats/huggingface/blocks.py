"""Modules that most families' layers have in common, in the names of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trinity.formats.huggingface.config import HFConfig
from trinity.formats.huggingface.stored import Module, Stored, rows


def norm(
    name: str, source: str | tuple[str, ...], size: int, *, add: float = 0.0, bias: bool = False
) -> Iterator[Module]:
    """A norm's weight, and its bias. ``source``: the checkpoint's name, or those it may have."""
    sources = (source,) if isinstance(source, str) else source
    yield vector(f"{name}.weight", tuple(f"{s}.weight" for s in sources), (size,), add=add)
    if bias:
        yield vector(f"{name}.bias", tuple(f"{s}.bias" for s in sources), (size,))


def vector(
    name: str, sources: str | tuple[str, ...], shape: tuple[int, ...], *, add: float = 0.0
) -> Module:
    """A tensor that stays float32, under the whole name that the checkpoint has for it."""
    names = (sources,) if isinstance(sources, str) else sources
    forms = tuple(Stored((source,), shape) for source in names)
    return Module(name, shape, forms, "precise", change=partial(_plus, add) if add else None)


def _plus(addend: float, values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values + np.float32(addend)


def linear(
    name: str, source: str, outputs: int, inputs: int, *, bias: bool = False, permuted: int = 0
) -> Iterator[Module]:
    """A linear layer's weight, and its bias. ``permuted``: heads whose rows GGUF has permuted."""
    shape = (outputs, inputs)
    forms = (Stored((f"{source}.weight",), shape),)
    yield Module(f"{name}.weight", shape, forms, "linear", permuted, has_bias=bias)
    if bias:
        forms = (Stored((f"{source}.bias",), shape[:1]),)
        yield Module(f"{name}.bias", shape[:1], forms, "precise", permuted)


def embedding(config: HFConfig) -> Module:
    """The rows of all tokens."""
    shape = (config.vocab_size, config.hidden_size)
    return Module(
        "token_embd.weight", shape, (Stored(("model.embed_tokens.weight",), shape),), "matrix"
    )


def attention(
    config: HFConfig,
    *,
    bias: bool = False,
    output_bias: bool = False,
    permuted: bool = False,
    output: str = "self_attn.o_proj",
) -> Iterator[Module]:
    """Projections to queries, keys and values, and from their heads. ``bias``: of the former."""
    hidden, query, kv = config.hidden_size, config.query_size, config.kv_size
    heads, kv_heads = (config.num_heads, config.num_kv_heads) if permuted else (0, 0)
    yield from linear("attn_q", "self_attn.q_proj", query, hidden, bias=bias, permuted=heads)
    yield from linear("attn_k", "self_attn.k_proj", kv, hidden, bias=bias, permuted=kv_heads)
    yield from linear("attn_v", "self_attn.v_proj", kv, hidden, bias=bias)
    yield from linear("attn_output", output, hidden, query, bias=output_bias)


def head_norms(config: HFConfig, *, add: float = 0.0) -> Iterator[Module]:
    """Norms of each head of queries and keys."""
    yield from norm("attn_q_norm", "self_attn.q_norm", config.head_dim, add=add)
    yield from norm("attn_k_norm", "self_attn.k_norm", config.head_dim, add=add)


def gated(
    hidden: int, width: int, *, source: str = "mlp", suffix: str = "", bias: bool = False
) -> Iterator[Module]:
    """A gated feed-forward. ``suffix`` is behind GGUF's names, "_shexp" of a shared expert."""
    yield from linear(f"ffn_gate{suffix}", f"{source}.gate_proj", width, hidden, bias=bias)
    yield from linear(f"ffn_up{suffix}", f"{source}.up_proj", width, hidden, bias=bias)
    yield from linear(f"ffn_down{suffix}", f"{source}.down_proj", hidden, width, bias=bias)


def experts_of(config: HFConfig) -> tuple[int, int]:
    """How many experts there are, and the width of one, of a class that always has some."""
    assert config.experts is not None
    return config.experts.count, config.experts.width


def router(config: HFConfig, source: str) -> Module:
    """The weight that chooses experts."""
    count, _ = experts_of(config)
    return vector("ffn_gate_inp.weight", f"{source}.weight", (count, config.hidden_size))


def experts(
    config: HFConfig,
    source: str,
    *,
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
) -> Iterator[Module]:
    """Gated experts: a matrix each, all in one tensor, or with the rows of gate and up together.

    mlx-lm's stacks are called switch_mlp; those of Ollama's tensor blobs keep transformers' name.
    """
    count, width = experts_of(config)
    hidden = config.hidden_size
    switch = f"{source.rpartition('.')[0]}.switch_mlp"
    fused, fused_shape = (f"{source}.gate_up_proj",), (count, 2 * width, hidden)
    stacked = f"{source}.down_proj"
    for part, module, shape, together in (
        ("gate", gate, (width, hidden), Stored(fused, fused_shape, rows(0, width))),
        ("up", up, (width, hidden), Stored(fused, fused_shape, rows(width))),
        ("down", down, (hidden, width), Stored((stacked,), (count, hidden, width))),
    ):
        each = Stored(tuple(f"{source}.{e}.{module}.weight" for e in range(count)), shape)
        whole = (count, *shape)
        stacks = (Stored((f"{at}.{part}_proj.weight",), whole) for at in (switch, source))
        yield Module(f"ffn_{part}_exps.weight", whole, (each, together, *stacks), "linear")
