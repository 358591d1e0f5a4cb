"""step35 (Step 3.5 and 3.7 Flash): layers with and without a window differ in heads and rotation.

Layers with a window have more query heads, rotate whole heads and have a base of their own; in the
others the first half of a head rotates. What a head attends to is multiplied by the sigmoid of the
head's gate. First layers are dense, the others have experts, chosen by sigmoid, and a shared one.
In some layers the feed-forward is limited: min(silu(gate), limit) * clamp(up, -limit, limit).
Source: llama.cpp src/models/step35.cpp and conversion/step3.py; transformers' Step3p7.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture, table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.activation_operations import Clamp, HeadGate
from trinity.models.architecture import Architecture, Has
from trinity.models.expert_operations import ExpertGated
from trinity.models.operations import Gated, Linear, Operation, Product


def head_gated_branch(
    config: ModelConfig, has: Has, attention: list[Operation],
    activation: Literal["sigmoid", "softplus"],
) -> list[Operation]:  # fmt: skip
    """The attention of a layer, multiplied by gates: a value for each head, or for each result."""
    heads, width = config.num_heads, config.value_dim or config.head_dim
    if config.gates_elements:
        heads, width = heads * width, 1
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        Linear("h", config.hidden_size, (Product("attn_gate", "attn_gate", heads),)),
        *attention,
        HeadGate(activation, "attn_gate", "a", heads, width),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
    ]


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    config, window = config.of_layer(index), config.window_of(index, 0)
    rotation = blocks.unscaled_in_windows(config, window)
    if not window:
        pairs = max(1, config.rope_dim // 4)
        rotation = replace(rotation, dim=2 * pairs, stored_factors=config.rope_dim // 2)
    return [
        *head_gated_branch(
            config, has, blocks.attention(config, rotation, window=window), "sigmoid"
        ),
        *_feed_forward(config, index, has),
    ]


def _feed_forward(config: ModelConfig, index: int, has: Has) -> Iterator[Operation]:
    experts = expert_blocks.experts_of(config)
    limit, shared_limit = (
        limits[index] if limits else 0.0
        for limits in (experts.swiglu_limits, experts.shared_swiglu_limits)
    )
    if not has("ffn_gate_inp"):
        yield from _limited(blocks.feed_forward(config, "silu"), shared_limit)
        return
    routed = expert_blocks.routed(config, has, "silu", gating="sigmoid", normalize=False)
    yield from _limited(routed, limit)
    yield from _limited(expert_blocks.shared_expert(config, "silu"), shared_limit)


def _limited(operations: Iterable[Operation], limit: float) -> Iterator[Operation]:
    """Limit the activation and its factor to ``limit``, if that is not 0."""
    for operation in operations:
        if not limit or not isinstance(operation, Gated | ExpertGated):
            yield operation
            continue
        gate, up, width = operation.gate, operation.up, operation.width
        of_experts = isinstance(operation, ExpertGated)
        yield replace(operation, up="")
        yield Clamp(gate, width, -math.inf, limit, of_experts)
        yield Clamp(up, width, -limit, limit, of_experts)
        yield replace(operation, activation="none")


ARCHITECTURES = (
    Architecture(
        ("step35",), _layer, rope_halves=True, heads_by_layer=True,
        needs=("experts", "sliding_window", "sliding_window_pattern"),
    ),
)  # fmt: skip

# -- In checkpoints --

_KINDS = ("full_attention", "sliding_attention")
# Lists with an entry for each layer and for each MTP layer.
_LISTS = (
    "layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared", "rope_theta",
    "partial_rotary_factors",
)  # fmt: skip


def _prepared(values: Values) -> Values:
    """Return the values without MTP layers, and with the rotation of each kind of layer."""
    layers = values.size("num_hidden_layers", "num_layers")
    more = values.size(mixture.DRAFTING_KEY, "nextn_layers", 0, smallest=0)
    cut = {
        key: found[:layers]
        for key in _LISTS
        if isinstance(found := values.values.get(key), list) and len(found) == layers + more
    }
    given = {**values.values, **cut}
    given.setdefault("layer_types", [_KINDS[0]] * layers)
    rope, kinds = given.get("rope_parameters"), given["layer_types"]
    of_kinds = set(kinds) if isinstance(kinds, list) and set(kinds) <= set(_KINDS) else set()
    if not (isinstance(rope, dict) and all(isinstance(rope.get(kind), dict) for kind in of_kinds)):
        given["rope_parameters"] = _rotations(Values(given, values.source), kinds, of_kinds)
    for key in ("rope_theta", "rope_scaling", "partial_rotary_factors", "partial_rotary_factor"):
        given.pop(key, None)
    return Values(given, values.source)


def _rotations(values: Values, kinds: object, of_kinds: set[str]) -> dict[str, object]:
    """Return rope_parameters from older keys, whose values may be lists with one for each layer."""
    words = {"rope_theta": "rope_theta", "partial_rotary_factors": "partial_rotary_factor"}
    scaling = values.inner("rope_scaling").values
    parameters: dict[str, object] = {}
    for kind in of_kinds:
        own: dict[str, object] = {"rope_type": "default"}
        for key, name in words.items():
            found = values.values.get(key)
            if isinstance(found, list) and isinstance(kinds, list):
                if len(found) != len(kinds):
                    raise values.error(key, f"must have {len(kinds)} values, one for each layer")
                found = found[kinds.index(kind)]
            if found is not None:
                own[name] = found
        parameters[kind] = {**own, **scaling} if kind == _KINDS[0] else own
    return parameters


_NORMS: table.Table = {
    "attn_norm": table.at("input_layernorm", add=1.0),
    **table.head_norms(add=1.0),
    "ffn_norm": table.at("post_attention_layernorm", add=1.0),
}


def _table(config: ModelConfig, values: Values) -> table.Table:
    return {
        **_NORMS,
        **table.attention(bias="attention_bias", output_bias="attention_bias"),
        "attn_gate": "self_attn.g_proj",
        **table.gated(),
        # Layers of experts are those with this tensor.
        "ffn_gate_inp": table.TableRow(
            (Stored(("moe.gate.weight",)),), layers=_sparse_layers(config, values)
        ),
        "exp_probs_b.bias": table.tensor("moe.router_bias"),
        **{f"ffn_{name}_exps": f"moe.{name}_proj" for name in ("gate", "up", "down")},
        **table.gated("share_expert", suffix="_shexp"),
    }


def _sparse_layers(config: ModelConfig, values: Values) -> list[int]:
    """Return the layers with experts."""
    kinds, layers = values.values.get("mlp_layer_types"), range(config.num_layers)
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != len(layers):
            raise values.error("mlp_layer_types", f"must be a list of {len(layers)}")
        return [layer for layer in layers if kinds[layer] == "sparse"]
    listed = values.values.get("moe_layers_enum", range(3, len(layers)))
    if isinstance(listed, str):
        listed = [number for number in listed.split(",") if number.strip()]
    try:
        numbers = {int(number) for number in listed}  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise values.error("moe_layers_enum", "must be numbers of layers") from None
    return [layer for layer in layers if layer in numbers]


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "norm_expert_weight": (None, True), "moe_router_activation": (None, "sigmoid"),
            "use_moe_router_bias": (None, True), "use_head_wise_attn_gate": (None, True),
            "use_qk_norm": (None, True), "zero_centered": (None, True), "sink": (None, False),
            "use_rope_layers": (None, []), "mlp_bias": (None, False),
            "query_pre_attn_scalar": (None, config.head_dim),
            "use_bidirectional_attention": (None, False),
            "yarn_only_types": (None, ["full_attention"]),
        },
    )  # fmt: skip
    if not config.sliding_window:
        raise UnsupportedError(
            f"{values.source}: no layer has a window; GGUF's files of this class have one"
        )
    if config.rope_dim * 2 != config.head_dim:
        raise UnsupportedError(
            f"{values.source}: {config.rope_dim} of {config.head_dim} values of a head rotate in "
            "layers without a window; in GGUF it is the half"
        )
    sparse = _sparse_layers(config, values)
    windowed = config.sliding_window_pattern
    assert isinstance(windowed, tuple)
    heads = _windowed_heads(config, values)
    return {
        "rope_dim": None,  # all values of a head; readers take the half
        "num_heads": np.array(
            [heads if window else config.num_heads for window in windowed], np.int32
        ),
        "num_kv_heads": np.full(config.num_layers, config.num_kv_heads, np.int32),
        "shared_intermediate_size": values.size("share_expert_dim", "shared_intermediate_size"),
        "expert_scale": values.real("moe_router_scaling_factor", "expert_scale", 1.0),
        "expert_normalize": True,
        "expert_gating": mixture.SIGMOID,
        "first_dense_layers": sparse[0] if sparse else config.num_layers,
        "expert_swiglu_limits": _limits(config, values, "swiglu_limits"),
        "shared_swiglu_limits": _limits(config, values, "swiglu_limits_shared"),
    }


def _windowed_heads(config: ModelConfig, values: Values) -> int:
    """Return the number of query heads of layers with a window."""
    own = "num_sliding_attention_heads"
    if values.has(own):
        return values.size(own, "num_heads")
    other = values.inner("attention_other_setting")
    known = {
        "num_attention_groups": (None, config.num_kv_heads), "head_dim": (None, config.head_dim),
        "true_head_dim": (None, config.head_dim),
    }  # fmt: skip
    refuse_other(other, known)
    return other.size("num_attention_heads", "num_heads", config.num_heads)


def _limits(config: ModelConfig, values: Values, key: str) -> object:
    """Return each layer's limit, 0 for none; None if there are no limits."""
    limits = values.values.get(key)
    if limits is None or limits == []:
        return None
    if not isinstance(limits, list) or len(limits) != config.num_layers:
        raise values.error(key, f"must be a list of {config.num_layers} limits")
    found = [
        Values({key: limit}, values.source).real(key, "expert_swiglu_limits") if limit else 0.0
        for limit in limits
    ]
    return np.array(found, np.float32)


FAMILY = Family(
    classes={"Step3p5ForCausalLM": "step35"},
    wrappers={"Step3p7ForConditionalGeneration": "step35"},
    layer=_table,
    ends={**table.EMBEDDING, "output_norm": table.at("model.norm", add=1.0)},
    prepare=_prepared,
    keys=_keys,
    unused=mixture.unused,
    whole_factors=True,
    windows=WindowTerms(1, gguf="layers"),  # if layers are not listed, none has a window
    rope_types=("llama3",),
    partial_rope=True,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "moe_intermediate_size": 1280,
        "share_expert_dim": 1280,
        "n_routed_experts": 288,
        "num_experts_per_tok": 8,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("n_routed_experts",)),
    older={
        "num_key_value_heads": "num_attention_groups",
        "n_routed_experts": "moe_num_experts",
        "num_experts_per_tok": "moe_top_k",
    },
)
