"""Layers of DeepSeek's kind: the first are dense, the others have routed and shared experts.

MTP layers may follow the last layer. GLM 4.5 has both from DeepSeek V3, under the same names.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.family import LAYER, Keys
from trinity.formats.huggingface.table import Table, Tables, experts, gated, tensor
from trinity.formats.huggingface.values import Values, shown

SIGMOID = 2  # of expert_gating_func

DRAFTING_KEY = "num_nextn_predict_layers"
FEED_FORWARD: Table = {
    **gated(),
    "ffn_gate_inp": "mlp.gate",
    **experts("mlp.experts"),
    **gated("mlp.shared_experts", suffix="_shexp"),
}
# With a bias that only chooses experts.
CHOSEN_WITH_BIAS: Table = {
    **gated(),
    "ffn_gate_inp": "mlp.gate",
    "exp_probs_b.bias": tensor("mlp.gate.e_score_correction_bias"),
    **experts("mlp.experts"),
    **gated("mlp.shared_experts", suffix="_shexp"),
}
_PAIR: Table = {
    "nextn.eh_proj": "eh_proj",
    "nextn.enorm": "enorm",
    "nextn.hnorm": "hnorm",
    "nextn.shared_head_norm": "shared_head.norm",
}


def keys_of_experts(
    config: ModelConfig, values: Values, *, sigmoid: bool, grouped: bool = True
) -> Keys:
    """Return the keys of experts.

    ``sigmoid``: experts' probabilities are the sigmoid of scores, otherwise the softmax, GGUF's
    default. ``grouped``: experts are chosen from the best groups, if there are several.
    """
    keys: dict[str, object] = {
        "first_dense_layers": _dense_layers(config, values),
        "num_shared_experts": _shared_count(values),
        "expert_scale": values.real("routed_scaling_factor", "expert_scale", 1.0),
        "expert_normalize": values.flag("norm_topk_prob") or None,
    }
    if sigmoid:
        keys["expert_gating"] = SIGMOID
    return {**keys, **_groups(values)} if grouped else keys


def listed_dense_layers(config: ModelConfig, values: Values, default: int) -> int:
    """Return how many layers are dense according to ``mlp_layer_types``; without it ``default``.

    Raises UnsupportedError if dense layers follow others.
    """
    kinds = values.values.get("mlp_layer_types")
    if kinds is None:
        return default
    dense = kinds.index("sparse") if isinstance(kinds, list) and "sparse" in kinds else -1
    if dense < 0 or kinds != ["dense"] * dense + ["sparse"] * (config.num_layers - dense):
        raise UnsupportedError(
            f"{values.source}: mlp_layer_types is {shown(kinds)}; in GGUF all layers after the "
            "first dense ones have experts"
        )
    return dense


def drafting(layer: Tables) -> tuple[tuple[str, Tables], ...]:
    """Return the table of the MTP layer: that of ``layer``, and its own tensors.

    Its embedding and its output's weight are copies of the model's.
    """

    def table(config: ModelConfig, values: Values) -> Table:
        return {**_PAIR, **(layer(config, values) if callable(layer) else layer)}

    return ((f"{LAYER}{{}}.", table),)


def unused(config: ModelConfig, values: Values) -> str:
    """Return a pattern of the MTP layers' tensors, which the class ignores as well."""
    first, count = config.num_layers, _drafting_layers(values)
    numbers = "|".join(str(index) for index in range(first, first + count))
    return rf"model\.layers\.({numbers})\..*" if count else ""


def _groups(values: Values) -> Keys:
    """Return the groups of experts, and how many of them a token uses."""
    if not values.has("n_group"):
        return {}
    return {
        "num_expert_groups": values.size("n_group", "num_expert_groups"),
        "expert_groups_used": values.size("topk_group", "expert_groups_used"),
    }


def dense_layers(values: Values) -> int:
    """Return the number of first layers without experts."""
    return values.size("first_k_dense_replace", "first_dense_layers", 0, smallest=0)


def _dense_layers(config: ModelConfig, values: Values) -> int:
    dense = dense_layers(values)
    if dense > config.num_layers:
        raise values.error("first_k_dense_replace", "exceeds num_hidden_layers")
    return dense


def _shared_count(values: Values) -> int:
    if not values.has("n_shared_experts"):  # null: none
        return 0
    return values.size("n_shared_experts", "num_shared_experts", 0, smallest=0)


def _drafting_layers(values: Values) -> int:
    """Return the number of MTP layers; without the key, such tensors are not expected."""
    return values.size(DRAFTING_KEY, "nextn_layers", 0, smallest=0)
