"""rwkv6: a recurrent state with a decay for each key instead of attention; LayerNorm everywhere.

Each layer mixes a token with the one before it, by weights that depend on both.
Source: llama.cpp src/models/rwkv6.cpp, rwkv6-base.cpp and conversion/rwkv.py; the published class.

Published code halves the stream after every ``rescale_every`` layers, and the weights that add to
it, for half precision. trinity computes a directory in float32 without that; GGUF files have it.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.stored import Stored, View, transposed
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.activation_operations import Softcap
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Add, Gated, HeadLinear, Linear, Operation, Product
from trinity.models.recurrent_operations import ShiftBy, TokenShift, Wkv6Decay, Wkv6Norm, Wkv6Rule
from trinity.models.wkv import as_shape, wkv_heads

_NORM_EPS = 64e-5  # of each head
_SHIFTS = "wkvrg"  # rows of time_mix_lerp_fused
_NAMES = {"k": "key", "v": "value", "r": "receptance", "g": "gate"}


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    hidden, width = config.hidden_size, config.intermediate_size
    heads, size, rank = wkv_heads(config), config.wkv_head_size, config.mix_rank
    parts = len(_SHIFTS)
    halved = config.halved_every > 0 and (index + 1) % config.halved_every == 0
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        TokenShift("h", ("xx",), "time_mix_lerp_x", hidden),
        _linear("xx", hidden, "time_mix_w1", "mix_latent", parts * rank),
        Softcap("mix_latent", parts * rank),
        HeadLinear("mix_latent", "mix", "time_mix_w2", parts, hidden, rank, rank, hidden),
        *_mixtures(hidden, has),
        *(_linear(f"x{one}", hidden, f"time_mix_{_NAMES[one]}", one, hidden) for one in _NAMES),
        _linear("xw", hidden, "time_mix_decay_w1", "w_latent", config.time_decay_rank),
        Softcap("w_latent", config.time_decay_rank),
        _linear("w_latent", config.time_decay_rank, "time_mix_decay_w2", "w", hidden),
        Wkv6Decay(heads, size),
        Wkv6Rule(heads, size),
        Wkv6Norm(heads, size, _NORM_EPS),
        Gated("silu", hidden, gate="g", up="o"),
        Linear("g", hidden, (Product("time_mix_output", "x", hidden),), add=True),
        blocks.norm(config, "x", "attn_norm_2", "h", kind="layer"),
        TokenShift("h", ("xk",), "channel_mix_lerp_k", hidden),
        TokenShift("h", ("xr",), "channel_mix_lerp_r", hidden),
        _linear("xk", hidden, "channel_mix_key", "gate", width),
        Gated("relu2", width, up=""),
        _linear("gate", width, "channel_mix_value", "v", hidden),
        _linear("xr", hidden, "channel_mix_receptance", "r", hidden),
        Gated("sigmoid", hidden, gate="r", up="v"),
        Add("r", "x", hidden, factor=0.5 if halved else 1.0),
    ]


def _mixtures(hidden: int, has: Has) -> list[Operation]:
    """Mix a token with the one before it in five ways. Files of 2024 have a weight for each."""
    outs = tuple(f"x{name}" for name in _SHIFTS)
    if not has("time_mix_lerp_w"):
        return [ShiftBy("h", outs, "time_mix_lerp_fused", hidden, "mix")]
    return [
        ShiftBy("h", (f"x{name}",), f"time_mix_lerp_{name}", hidden, "mix", part)
        for part, name in enumerate(_SHIFTS)
    ]


def _linear(x: str, width: int, weight: str, out: str, rows: int) -> Linear:
    return Linear(x, width, (Product(weight, out, rows),))


ARCHITECTURES = (
    Architecture(
        ("rwkv6",), _layer, rope_halves=False, norm="layer", mixed=True,
        needs=("wkv_head_size", "mix_rank", "time_decay_rank"),
        prologue=lambda config: [blocks.norm(config, "x", "token_embd_norm", "x", kind="layer")],
    ),
)  # fmt: skip

# -- In published checkpoints --


def _table(config: ModelConfig, values: Values) -> Table:
    hidden, heads = config.hidden_size, wkv_heads(config)

    def one(name: str, view: View) -> TableRow:
        return TableRow((Stored((name,), view, turned=view is transposed),))

    shifts = tuple(f"attention.time_maa_{name}" for name in _SHIFTS)
    products = {
        **{f"time_mix_{name}": f"attention.{name}" for name in (*_NAMES.values(), "output")},
        **{f"channel_mix_{_NAMES[one]}": f"feed_forward.{_NAMES[one]}" for one in "kvr"},
    }
    return {
        "attn_norm": at("ln1", bias=True),
        "attn_norm_2": at("ln2", bias=True),
        "time_mix_lerp_x": one("attention.time_maa_x", as_shape(hidden)),
        "time_mix_lerp_fused": TableRow((Stored(shifts, as_shape(1, 1, 1, hidden)),)),
        "time_mix_w1": one("attention.time_maa_w1", transposed),
        "time_mix_w2": one("attention.time_maa_w2", transposed),
        "time_mix_decay": one("attention.time_decay", as_shape(hidden)),
        "time_mix_decay_w1": one("attention.time_decay_w1", transposed),
        "time_mix_decay_w2": one("attention.time_decay_w2", transposed),
        "time_mix_first": one("attention.time_faaaa", as_shape(heads, config.wkv_head_size)),
        "time_mix_ln": at("attention.ln_x", bias=True),
        "channel_mix_lerp_k": one("feed_forward.time_maa_k", as_shape(hidden)),
        "channel_mix_lerp_r": one("feed_forward.time_maa_r", as_shape(hidden)),
        **products,
    }


def _prepared(values: Values) -> Values:
    given = dict(values.values)
    if not values.has("intermediate_size"):
        hidden = values.size("hidden_size", "hidden_size")
        given["intermediate_size"] = int(hidden * 3.5) // 32 * 32
    return Values(given, values.source)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values, {"attention_hidden_size": (None, config.hidden_size), "head_size_divisor": (8,)}
    )
    wide = config.hidden_size == 4096
    return {
        "num_heads": 0,
        **dict.fromkeys(("num_kv_heads", "head_dim", "value_dim", "rope_dim", "rope_theta")),
        "wkv_head_size": values.size("head_size", "wkv_head_size"),
        "mix_rank": 64 if wide else 32,
        "time_decay_rank": 128 if wide else 64,
        "context_length": 1 << 20,
    }


FAMILY = Family(
    classes={"Rwkv6ForCausalLM": "rwkv6"},
    layer=_table,
    ends={
        "token_embd": "rwkv.embeddings",
        "token_embd_norm": at("model.layers.0.pre_ln", bias=True),
        "output_norm": at("rwkv.ln_out", bias=True),
    },
    prepare=_prepared,
    keys=_keys,
    renames=(("rwkv.blocks.", "model.layers."), ("head.", "lm_head.")),
    epsilon="layer_norm_epsilon",
    defaults={
        "head_size": 64,
        "head_size_divisor": 8,
        "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 1 << 20,
        "num_attention_heads": 1,
        "tie_word_embeddings": False,
    },
)
