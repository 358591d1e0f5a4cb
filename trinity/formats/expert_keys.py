"""Read experts and latent attention from metadata."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trinity.config import ExpertConfig, Gating, LatentConfig
from trinity.formats.config_limits import MAX_QUERY_WIDTH, checked_real
from trinity.formats.config_reader import ConfigReader, shown

_KIMI = "kimi-linear"  # its files have another number for values, which nothing needs
_GATING: dict[int, Gating] = {
    1: "softmax",
    2: "sigmoid",
    3: "softmax_chosen",
}  # values of llama.cpp's expert_gating_func


def read_experts(reader: ConfigReader, num_layers: int) -> ExpertConfig | None:
    """Return the experts, or None for a dense model."""
    num_experts = reader.integer("num_experts", default=0, smallest=0)
    if num_experts == 0:
        used = reader.integer("num_experts_per_tok", default=0, smallest=0)
        if used:
            raise reader.clash(
                "num_experts_per_tok", used, "num_experts", num_experts, "must not exceed"
            )
        return None
    used = reader.integer("num_experts_per_tok")
    if used > num_experts:
        raise reader.clash(
            "num_experts_per_tok", used, "num_experts", num_experts, "must not exceed"
        )
    first_dense_layers = reader.integer("first_dense_layers", default=0, smallest=0)
    if first_dense_layers > num_layers:
        raise reader.clash(
            "first_dense_layers", first_dense_layers, "num_layers", num_layers, "must not exceed"
        )
    if isinstance(reader.value("expert_intermediate_size", default=0), np.ndarray):
        size = reader.of_all_layers("expert_intermediate_size", num_layers)
    else:
        size = reader.integer("expert_intermediate_size", default=0, smallest=0)
    num_groups, groups_used = _groups(reader, num_experts, used)
    return ExpertConfig(
        num_experts=num_experts,
        num_experts_per_tok=used,
        intermediate_size=size,
        latent_size=reader.integer("expert_latent_size", default=0, smallest=0),
        shared_intermediate_size=_shared_size(reader, size),
        first_dense_layers=first_dense_layers,
        layer_step=reader.integer("expert_layer_step", default=1),
        gating=_gating(reader),
        normalize=reader.boolean("expert_normalize"),
        scale=reader.real_or_none("expert_scale") or 1.0,
        swiglu_limits=_limits(reader, "expert_swiglu_limits", num_layers),
        shared_swiglu_limits=_limits(reader, "shared_swiglu_limits", num_layers),
        num_groups=num_groups,
        groups_used=groups_used,
    )


def _limits(reader: ConfigReader, name: str, num_layers: int) -> tuple[float, ...]:
    """Return each layer's limit; a file may have one limit for all layers. () if there is none."""
    values = reader.value(name, default=0.0)
    if not isinstance(values, np.ndarray):
        limit = reader.real_or_none(name)
        return (limit,) * num_layers if limit else ()
    if values.dtype.kind != "f" or len(values) != num_layers:
        raise reader.error(
            name, f"is {shown(values)}; expected one number, or one for each of {num_layers} layers"
        )
    where = f"{reader.source}: {reader.key(name)} ({name})"
    limits = tuple(limit and checked_real(name, limit, where) for limit in values.tolist())
    return limits if any(limits) else ()


def _gating(reader: ConfigReader) -> Gating | Literal[""]:
    if not reader.is_set("expert_gating"):
        return ""
    value = reader.integer("expert_gating", smallest=0)
    if value not in _GATING:
        known = ", ".join(f"{number} ({name})" for number, name in _GATING.items())
        raise reader.error(
            "expert_gating", f"is {value}, which is not supported; known values: {known}"
        )
    return _GATING[value]


def _shared_size(reader: ConfigReader, expert_size: int) -> int:
    """Return the width of the shared expert, from its own key or as a multiple; 0 if none."""
    if reader.is_set("shared_intermediate_size"):
        return reader.integer("shared_intermediate_size", smallest=0)
    count = reader.integer("num_shared_experts", default=0, smallest=0)
    if count and not expert_size:
        raise reader.clash(
            "num_shared_experts", count, "expert_intermediate_size", "missing", "is multiplied by"
        )
    return count * expert_size


def _groups(reader: ConfigReader, num_experts: int, used: int) -> tuple[int, int]:
    """Return the number of groups of experts and of chosen groups; 0, 0 for one group."""
    groups = reader.integer("num_expert_groups", default=0, smallest=0)
    if groups <= 1:
        return 0, 0
    if num_experts % groups or num_experts < 2 * groups:
        relation = "must divide into groups of two or more"
        raise reader.clash("num_expert_groups", groups, "num_experts", num_experts, relation)
    chosen = reader.integer("expert_groups_used")
    if chosen > groups:
        raise reader.clash(
            "expert_groups_used", chosen, "num_expert_groups", groups, "must not exceed"
        )
    if used > chosen * (num_experts // groups):
        relation = f"{used} experts per token do not fit into that many of"
        raise reader.clash("expert_groups_used", chosen, "num_expert_groups", groups, relation)
    return groups, chosen


def read_latent(
    reader: ConfigReader, num_heads: int, num_kv_heads: int, head_dim: int, value_dim: int,
    rope_dim: int,
) -> LatentConfig | None:  # fmt: skip
    """Return the sizes of multi-head latent attention, or None.

    With the keys ``*_mla``, these give the sizes of a head, and the other keys what the cache
    stores: kv_lora_rank + rope_dim values for all heads together. Older files only give the former.
    """
    if not reader.is_set("kv_lora_rank"):
        return None
    rank = reader.integer("kv_lora_rank")
    if reader.is_set("latent_key_dim"):
        key_dim = reader.integer("latent_key_dim")
        values = reader.integer("latent_value_dim")
        if head_dim != rank + rope_dim:
            relation = f"must be {rank + rope_dim}, the sum of rope_dim {rope_dim} and"
            raise reader.clash("head_dim", head_dim, "kv_lora_rank", rank, relation)
        of_values = value_dim if reader.text("general.architecture") != _KIMI else rank
        if of_values != rank:
            raise reader.clash("value_dim", value_dim, "kv_lora_rank", rank, "must equal")
        if num_kv_heads != 1:
            raise reader.clash(
                "num_kv_heads", num_kv_heads, "latent_key_dim", key_dim, "must be 1 if the file has"
            )
        name = "latent_key_dim"
    else:
        key_dim, values, name = head_dim, value_dim, "head_dim"
    if key_dim <= rope_dim:
        raise reader.clash(name, key_dim, "rope_dim", rope_dim, "must exceed")
    widest = max(key_dim, values, rank + rope_dim)
    if num_heads * widest > MAX_QUERY_WIDTH:
        relation = f"{MAX_QUERY_WIDTH} is trinity's limit for the product with {widest}, by"
        raise reader.clash("num_heads", num_heads, "kv_lora_rank", rank, relation)
    return LatentConfig(
        kv_lora_rank=rank,
        q_lora_rank=reader.integer("q_lora_rank", default=0, smallest=0),
        key_dim=key_dim,
        value_dim=values,
    )
