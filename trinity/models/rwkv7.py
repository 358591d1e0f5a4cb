"""rwkv7: a recurrent state with a decay for each key instead of attention; LayerNorm everywhere.

Each layer mixes a token with the one before it, and layers after the first mix the first layer's
values into their own. Checkpoints are those of fla, the library flash-linear-attention.
Source: llama.cpp src/models/rwkv7.cpp and conversion/rwkv.py; fla's RWKV7ForCausalLM.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.table import Table, TableRow, at, tensor
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.activation_operations import Softcap
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Gated, Linear, Operation, Product
from trinity.models.recurrent_operations import RwkvKeys, RwkvOutput, RwkvRule, TokenShift
from trinity.models.wkv import as_shape, wkv_heads

_NORM_EPS = 64e-5  # of each head, in llama.cpp and for fla's heads of 64
_SHIFTS = "rwkvag"  # rows of time_mix_lerp_fused


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    hidden, gated = config.hidden_size, config.gate_rank > 0
    heads, size = wkv_heads(config), config.wkv_head_size
    shifts = _SHIFTS if gated else _SHIFTS[:-1]
    width, values = config.intermediate_size, [Product("time_mix_value", "v", hidden)]
    if index:
        values.append(Product("time_mix_v1", "v_latent", config.value_rank))
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        TokenShift("h", tuple(f"x{name}" for name in shifts), "time_mix_lerp_fused", hidden),
        _linear(hidden, "xr", "r", "receptance", hidden),
        _linear(hidden, "xk", "k", "key", hidden),
        Linear("xv", hidden, tuple(values)),
        *_low_rank(hidden, config.decay_rank, "w", [Softcap("w_latent", config.decay_rank)]),
        *_low_rank(hidden, config.rate_rank, "a", []),
        *([_linear(config.value_rank, "v_latent", "v_mix", "v2", hidden)] if index else []),
        *(_gate(hidden, config.gate_rank) if gated else ()),
        RwkvKeys(heads, size, first=not index, rank=0 if index else config.rate_rank),
        RwkvRule(heads, size),
        RwkvOutput(heads, size, gated, _NORM_EPS),
        Linear("o", hidden, (Product("time_mix_output", "x", hidden),), add=True),
        blocks.norm(config, "x", "attn_norm_2", "h", kind="layer"),
        TokenShift("h", ("xk",), "channel_mix_lerp_k", hidden),
        Linear("xk", hidden, (Product("channel_mix_key", "gate", width),)),
        Gated("relu2", width, up=""),
        Linear("gate", width, (Product("channel_mix_value", "x", hidden),), add=True),
    ]


def _linear(width: int, x: str, out: str, name: str, rows: int) -> Linear:
    return Linear(x, width, (Product(f"time_mix_{name}", out, rows),))


def _low_rank(hidden: int, rank: int, name: str, between: list[Operation]) -> list[Operation]:
    """Two products, with operations on the few values between them."""
    return [
        _linear(hidden, f"x{name}", f"{name}_latent", f"{name}1", rank),
        *between,
        _linear(rank, f"{name}_latent", name, f"{name}2", hidden),
    ]


def _gate(hidden: int, rank: int) -> list[Operation]:
    return _low_rank(hidden, rank, "g", [Gated("sigmoid", rank, gate="g_latent", up="")])


ARCHITECTURES = (
    Architecture(
        ("rwkv7",), _layer, rope_halves=False, norm="layer", mixed=True,
        needs=("wkv_head_size", "decay_rank", "rate_rank", "value_rank", "gate_rank"),
        prologue=lambda config: [blocks.norm(config, "x", "token_embd_norm", "x", kind="layer")],
    ),
)  # fmt: skip

# -- In fla's checkpoints --

_FIRST = "model.layers.0.attn."


def _table(config: ModelConfig, values: Values) -> Table:
    hidden = config.hidden_size

    def second(name: str, kind: str) -> TableRow:
        """Return a low-rank projection. In GGUF's first layer the values' one, which is not used,
        is a copy of the rates'.
        """
        names = (f"attn.{name}_lora.lora.{kind}", f"attn.a_lora.lora.{kind}")
        return tensor(*dict.fromkeys(names))

    low_rank = {
        f"time_mix_{name}{number}": second(name, kind)
        for name in "wav"
        for number, kind in ((0, "2.bias"), (1, "0.weight"), (2, "2.weight"))
    }
    shifts = Stored(tuple(f"attn.x_{name}" for name in _SHIFTS), as_shape(1, 1, 1, hidden))
    older = Stored(("attn.x_x",), as_shape(len(_SHIFTS), 1, 1, hidden))
    return {
        "attn_norm": at("attn_norm", bias=True),
        "attn_norm_2": at("ffn_norm", bias=True),
        "time_mix_lerp_fused": TableRow((shifts, older)),
        **low_rank,
        "time_mix_g1": "attn.g_lora.lora.0",
        "time_mix_g2": "attn.g_lora.lora.2",
        "time_mix_receptance": "attn.r_proj",
        "time_mix_key": "attn.k_proj",
        "time_mix_value": "attn.v_proj",
        "time_mix_output": "attn.o_proj",
        "time_mix_k_k": tensor("attn.k_k"),
        "time_mix_k_a": tensor("attn.k_a"),
        "time_mix_r_k": TableRow((Stored(("attn.r_k",), as_shape(hidden)),)),
        "time_mix_ln": at("attn.g_norm", bias=True),
        "channel_mix_lerp_k": TableRow((Stored(("ffn.x_k",), as_shape(hidden)),)),
        "channel_mix_key": "ffn.key",
        "channel_mix_value": "ffn.value",
    }


def _prepared(values: Values) -> Values:
    given = {"hidden_ratio": 4, **values.values}
    if not values.has("intermediate_size"):
        width = int(
            values.size("hidden_size", "hidden_size")
            * values.real("hidden_ratio", "multiplier", 4.0)
        )
        given["intermediate_size"] = -(-width // 32) * 32
    return Values(given, values.source)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "attn": (None,),
            "norm_first": (True,),
            "norm_bias": (True,),
            "value_dim": (None, [config.hidden_size] * config.num_layers),
        },
    )
    size = config.head_dim
    if config.hidden_size % size:
        raise values.error("head_dim", f"does not divide hidden_size {config.hidden_size}")
    if abs(size * config.rms_norm_eps - _NORM_EPS) > 1e-9:
        raise UnsupportedError(
            f"{values.source}: head_dim x norm_eps is {size * config.rms_norm_eps:g}; GGUF cannot "
            f"say so: its readers use {_NORM_EPS:g} for the norm of a head"
        )
    ranks = {
        "decay_rank": "decay_low_rank_dim", "rate_rank": "a_low_rank_dim",
        "value_rank": "v_low_rank_dim", "gate_rank": "gate_low_rank_dim",
    }  # fmt: skip
    return {
        "num_heads": 0,
        **dict.fromkeys(("num_kv_heads", "head_dim", "value_dim", "rope_dim", "rope_theta")),
        "wkv_head_size": size,
        **{field: values.size(key, field) for field, key in ranks.items()},
        "context_length": 1 << 20,
    }


FAMILY = Family(
    classes={"RWKV7ForCausalLM": "rwkv7"},
    activation="hidden_act",
    activations=("sqrelu",),
    layer=_table,
    ends={
        "token_embd": "model.embeddings",
        "token_embd_norm": at("model.layers.0.pre_norm", bias=True),
        "output_norm": at("model.norm", bias=True),
    },
    prepare=_prepared,
    keys=_keys,
    # Only later layers mix values in.
    renames=((f"{_FIRST}v_lora.", f"{_FIRST}unused."),),
    unused=r"model\.layers\.0\.attn\.unused\..*",
    epsilon="norm_eps",
    defaults={
        "a_low_rank_dim": 64,
        "decay_low_rank_dim": 64,
        "gate_low_rank_dim": 128,
        "head_dim": 64,
        "hidden_act": "sqrelu",
        "max_position_embeddings": 2048,
        "norm_bias": True,
        "norm_eps": 1e-5,
        "norm_first": True,
        "num_attention_heads": 1,
        "tie_word_embeddings": False,
        "v_low_rank_dim": 16,
    },
)
