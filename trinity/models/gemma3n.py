"""gemma3n (Gemma 3n E2B and E4B): four residual streams (AltUp), embeddings for each layer, Laurel.

A layer predicts all streams, computes the first, and corrects the others by the difference. Laurel
is a second branch of low rank in parallel to attention. The first layers keep only the largest
values of the feed-forward's gate. The last layers have no keys and values and read those of the
last layer of their kind that has. x holds the first stream's result within a layer.
Source: llama.cpp src/models/gemma3n.cpp; transformers' Gemma3n. llama.cpp fixes the number of
streams, Laurel's rank, and which layers share keys or keep the largest values.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.values import Values
from trinity.formats.tensor_names import complete
from trinity.models import blocks, gemma4, layer_inputs
from trinity.models import operations as op
from trinity.models.activation_operations import GaussianTop, Softcap
from trinity.models.altup_operations import STREAMS, AltUpCorrect, AltUpPredict, MatchMagnitude
from trinity.models.architecture import Architecture, Has

_PERIOD = 5
_LAUREL_RANK = 64
_LOCAL_THETA = 10_000.0
_SPARSE_LAYERS, _SPARSITY = 10, 0.95  # of files that do not say


def _layer(config: ModelConfig, index: int, has: Has) -> list[op.Operation]:
    hidden = config.hidden_size
    return [
        *_coefficients(config, "streams", "altup_predict_coef", STREAMS**2),
        AltUpPredict("streams", "coefs", hidden),
        op.Copy("streams", "x", 1, hidden, hidden, hidden),
        blocks.norm(config, "x", "attn_norm", "h"),
        *_laurel(config),
        *_attention(config, index),
        blocks.norm(config, "branch", "post_attention_norm", "x", add=True),
        op.Add("h", "x", hidden, math.sqrt(0.5)),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *_feed_forward(config, index),
        blocks.norm(config, "h", "post_ffw_norm", "x", add=True),
        *_coefficients(config, "x", "altup_correct_coef", STREAMS),
        AltUpCorrect("streams", "coefs", "x", "altup_correct_scale", "h", hidden),
        *layer_inputs.projected(config, index, "h"),
        blocks.norm(config, "h", "post_norm", "h"),
        op.Add("h", "streams", hidden, out_first=hidden, groups=STREAMS - 1),
    ]


def _coefficients(config: ModelConfig, x: str, weight: str, count: int) -> list[op.Operation]:
    """Coefficients of streams, from the stream x."""
    hidden = config.hidden_size
    return [
        op.Norm(x, "altup_router_norm", "h", hidden, factor=1 / hidden),
        op.Linear("h", hidden, (op.Product("altup_router", "modalities", STREAMS),)),
        Softcap("modalities", STREAMS),
        op.Linear("modalities", STREAMS, (op.Product(weight, "coefs", count),)),
    ]


def _laurel(config: ModelConfig) -> list[op.Operation]:
    """Add Laurel's branch to x, except its input h, which is added after the attention."""
    return [
        op.Linear("h", config.hidden_size, (op.Product("laurel_l", "laurel", _LAUREL_RANK),)),
        op.Linear("laurel", _LAUREL_RANK, (op.Product("laurel_r", "branch", config.hidden_size),)),
        blocks.norm(config, "branch", "laurel_post_norm", "x", add=True),
    ]


def _attention(config: ModelConfig, index: int) -> list[op.Operation]:
    heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
    window = config.window_of(index, _PERIOD)
    rotation = blocks.rotation_of(config)
    if window:
        rotation = op.Rotation(config.rope_theta_swa or _LOCAL_THETA, config.rope_dim)
    source = blocks.cache_of(config, index, _PERIOD)
    products = [op.Product("attn_q", "q", heads * size)]
    norms = [op.Norm("q", "attn_q_norm", "q", size, heads)]
    if source is None:
        products += [op.Product(f"attn_{part}", part, kv_heads * size) for part in "kv"]
        norms += [
            op.Norm("k", "attn_k_norm", "k", size, kv_heads),
            op.Norm("v", "", "v", size, kv_heads),
        ]
    return [
        op.Linear("h", config.hidden_size, tuple(products)),
        *norms,
        op.Rope(heads, kv_heads, size, rotation, stores=source is None),
        op.Attention(heads, kv_heads, size, 1.0, window, cache_of=source),
        op.Linear("a", heads * size, (op.Product("attn_output", "branch", config.hidden_size),)),
    ]


def _feed_forward(config: ModelConfig, index: int) -> list[op.Operation]:
    size = config.intermediate_size_of(index)
    products = op.Product("ffn_gate", "gate", size), op.Product("ffn_up", "up", size)
    scales = config.sparsity_scale
    if not scales:
        sparse = min(_SPARSE_LAYERS, config.num_layers)
        scales = (_scale(_SPARSITY),) * sparse + (-math.inf,) * (config.num_layers - sparse)
    top = [] if scales[index] == -math.inf else [GaussianTop("gate", size, scales[index])]
    down = op.Product("ffn_down", "h", config.hidden_size)
    return [
        op.Linear("h", config.hidden_size, products, scales_bias=True),
        *top,
        op.Gated("gelu", size),
        op.Linear("gate", size, (down,), scales_bias=True),
    ]


def _scale(sparsity: float) -> float:
    """The threshold, in standard deviations, below which a share of normal values is."""
    return NormalDist().inv_cdf(float(np.float32(sparsity))) if sparsity > 0 else -math.inf


def _prologue(config: ModelConfig) -> list[op.Operation]:
    hidden, others = config.hidden_size, STREAMS - 1
    return [
        *layer_inputs.prologue(config),
        op.HeadLinear("x", "others", "altup_proj", others, hidden, hidden, 0, hidden),
        MatchMagnitude("others", "x", hidden, others),
        op.Copy("x", "streams", 1, hidden, hidden, hidden),
        op.Copy("others", "streams", others, hidden, hidden, hidden, out_first=hidden),
    ]


def _epilogue(config: ModelConfig) -> list[op.Operation]:
    """The mean of the first stream and the projections of the others."""
    hidden, others = config.hidden_size, STREAMS - 1
    sums = [op.Add("merged", "x", hidden, x_first=hidden * other) for other in range(others)]
    return [
        op.Copy("streams", "x", 1, hidden, hidden, hidden),
        op.Copy("streams", "others", others, hidden, hidden, hidden, x_first=hidden),
        op.HeadLinear(
            "others", "merged", "altup_unembd_proj", others, hidden, hidden, hidden, hidden
        ),
        MatchMagnitude("merged", "x", hidden, others),
        *sums[:-1],
        op.Add("merged", "x", hidden, 1 / STREAMS, x_first=hidden * (others - 1)),
    ]


ARCHITECTURES = (
    Architecture(
        ("gemma3n",), _layer, rope_halves=True,
        embedding_scale=lambda config: math.sqrt(config.hidden_size),
        tables=layer_inputs.tables, prologue=_prologue, epilogue=_epilogue,
        needs=("sliding_window", "per_layer_input_size"),
        # Unused tensors of layers that share keys and values; checkpoints contain them.
        unread=frozenset({"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_TANH = "gelu_pytorch_tanh"
_ENDS: table.Table = {
    **gemma4.ENDS,
    "altup_proj": table.TableRow((Stored(("model.altup_projections.{}.weight",)),)),
    "altup_unembd_proj": table.TableRow((Stored(("model.altup_unembed_projections.{}.weight",)),)),
}
_LAYER: table.Table = {
    "attn_norm": "input_layernorm",
    **table.attention(bias="attention_bias", output_bias="attention_bias"),
    **table.head_norms(),
    **gemma4.FEED_FORWARD,
    **gemma4.LAYER_INPUT,
    "altup_correct_coef": "altup.correction_coefs",
    "altup_correct_scale": table.tensor("altup.correct_output_scale"),
    "altup_predict_coef": "altup.prediction_coefs",
    "altup_router": "altup.modality_router",
    "altup_router_norm": "altup.router_norm",
    "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm",
}


def _table(config: ModelConfig, values: Values) -> table.Table:
    """Return all tensors of a layer, with the unused ones, which llama.cpp requires."""
    keys = config.num_kv_heads * config.head_dim
    shapes = {
        "attn_k": (keys, config.hidden_size),
        "attn_v": (keys, config.hidden_size),
        "attn_k_norm": (config.head_dim,),
    }
    rows = table.table_rows(_LAYER, config, values)
    return rows | {
        complete(name): replace(rows[complete(name)], shape=shape, optional=True)
        for name, shape in shapes.items()
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "altup_num_inputs": (STREAMS,),
            "altup_active_idx": (0,),
            "altup_correct_scale": (True,),
            "laurel_rank": (_LAUREL_RANK,),
            "attention_bias": (False,),
        },
    )
    rows = values.size("vocab_size_per_layer_input", "vocab_size")
    if rows > config.vocab_size:
        raise UnsupportedError(
            f"{values.source}: vocab_size_per_layer_input is {rows}, more than vocab_size "
            f"{config.vocab_size}"
        )
    return {
        "shared_kv_layers": config.num_layers - gemma4.first_shared(config, values),
        "per_layer_input_size": values.size("hidden_size_per_layer_input", "per_layer_input_size"),
        "altup.active_idx": 0,
        "altup.num_inputs": STREAMS,
        "sparsity_scale": np.array(_sparsity_scales(config, values), np.float32),
        **gemma4.softcap_keys(values),
    }


def _sparsity_scales(config: ModelConfig, values: Values) -> list[float]:
    key, layers = "activation_sparsity_pattern", config.num_layers
    if not values.has(key):
        sparse = _SPARSE_LAYERS if layers > _SPARSE_LAYERS else 0
        return [_scale(_SPARSITY)] * sparse + [-math.inf] * (layers - sparse)
    given = values.reals(key, "sparsity", layers)
    return [_scale(sparsity) for sparsity in given]


FAMILY = Family(
    classes={"Gemma3nForCausalLM": "gemma3n"},
    wrappers={"Gemma3nForConditionalGeneration": "gemma3n"},
    activations=(_TANH,),
    layer=_table,
    ends=_ENDS,
    keys=_keys,
    unused=gemma4.unused,
    windows=WindowTerms(_PERIOD, gguf="layers"),
    by_layer=("intermediate_size",),
    activation="hidden_activation",
    rope_types=(),
    defaults={
        "head_dim": 256,
        "hidden_activation": _TANH,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "sliding_window": 512,
        "final_logit_softcapping": 30.0,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": _LOCAL_THETA,
        "tie_word_embeddings": True,
        "vocab_size_per_layer_input": 262_144,
        "hidden_size_per_layer_input": 256,
        "num_kv_shared_layers": 15,
        "altup_num_inputs": STREAMS,
        "altup_active_idx": 0,
        "altup_correct_scale": True,
        "laurel_rank": _LAUREL_RANK,
        "attention_bias": False,
    },
)
