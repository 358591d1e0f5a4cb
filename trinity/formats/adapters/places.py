"""Which tensors of a model the modules of transformers are.

The families of formats/huggingface say it of a configuration. For a model of any format they get
one with its sizes in their own words; what they say counts where the model has such a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from trinity.config import ModelConfig, SSMConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.adapters.adapter import Base
from trinity.formats.huggingface.config import Experts, HFConfig
from trinity.formats.huggingface.families import FAMILIES
from trinity.formats.huggingface.family import LAYER, Family
from trinity.formats.huggingface.rope import Rope, Scaling
from trinity.formats.huggingface.stored import Module, Stored, rows
from trinity.formats.huggingface.values import Values

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
# GGUF's tensors that may stand in the place of others, and modules of which the same is true.
_FUSED = {
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
}
_TOGETHER = (
    ("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor that a module holds: all of it, its matrix of one ``expert``, or some of its rows.

    Those are as many as the module has, from ``first`` on.
    """

    name: str
    shape: tuple[int, ...]
    stored: Stored
    heads: int = 0
    expert: int | None = None
    first: int | None = None


def places_of(base: Base) -> dict[str, list[Place]]:
    """The tensors of every module of the base that an adapter may change."""
    found: dict[str, list[Place]] = {}
    known: set[str] = set()
    for family in FAMILIES:
        if base.config.architecture in (*family.architectures.values(), family.with_experts):
            new = set()
            for module, place in _of_family(base, family):
                if place.name in known:
                    continue
                places = found.setdefault(module, [])
                # Forms whose names differ in ".weight" alone are one module.
                taken = {(one.name, one.first) for one in places}
                if not taken & {(place.name, None), (place.name, place.first)}:
                    places.append(place)
                    new.add(place.name)
            known |= new
            _add_other_names(found, family)
    for layer in range(base.config.num_layers):
        for whole, parts in _TOGETHER:
            names = [f"{LAYER}{layer}.{part}" for part in parts]
            _add_other_form(base, found, f"{LAYER}{layer}.{whole}", names)
    found["lm_head"] = [Place(HEAD, base.shapes[HEAD], Stored(("lm_head",), base.shapes[HEAD]))]
    return found


def _add_other_names(found: dict[str, list[Place]], family: Family) -> None:
    """What checkpoints call modules whose names begin otherwise than the family says."""
    for before, stands_for in family.renames:
        for module in [one for one in found if one.startswith(stands_for)]:
            found.setdefault(before + module.removeprefix(stands_for), found[module])


def part_of_fused(base: Base, name: str) -> tuple[str, int, int] | None:
    """The base's tensor that holds the rows of ``name``, which it lacks; first row, and how many.

    Converters may make one tensor of queries, keys and values, and of experts' gate and up.
    """
    prefix, _, part = name.removesuffix(".weight").rpartition(".")
    fused = next((whole for whole, parts in _FUSED.items() if part in parts), "")
    whole = f"{prefix}.{fused}.weight"
    if not fused or name in base.shapes or whole not in base.shapes:
        return None
    sizes = _sizes(base, len(_FUSED[fused]), base.shapes[whole][-2])
    number = _FUSED[fused].index(part)
    return whole, sum(sizes[:number]), sizes[number]


def _sizes(base: Base, parts: int, total: int) -> tuple[int, ...]:
    """How many of the rows belong to gate and up, or to queries, keys and values."""
    if parts == 2:
        return total // 2, total // 2
    query = base.config.num_heads * base.config.head_dim
    return query, (total - query) // 2, (total - query) // 2


def _add_other_form(
    base: Base, found: dict[str, list[Place]], whole: str, parts: Sequence[str]
) -> None:
    """The parts of a module that holds several, or the module that would hold these."""
    own = [found.get(part, []) for part in parts]
    if whole in found and not any(own):
        (place,), first = found[whole], 0
        rows_in_all, width = place.stored.shape
        for part, size in zip(parts, _sizes(base, len(parts), rows_in_all), strict=True):
            stored = Stored((part,), (size, width))
            found[part] = [replace(place, stored=stored, first=first)]
            first += size
    elif whole not in found and all(len(places) == 1 for places in own):
        places = [place for (place,) in own]
        ends = list(accumulate((place.stored.shape[0] for place in places), initial=0))
        shape = ends[-1], places[0].stored.shape[1]
        found[whole] = [
            replace(place, stored=Stored((whole,), shape, rows(first, end)))
            for place, (first, end) in zip(places, pairwise(ends), strict=True)
        ]


def _of_family(base: Base, family: Family) -> Iterator[tuple[str, Place]]:
    config = _config(base, family)
    if config is None:
        return
    layers: list[tuple[str, str, Iterable[Module]]] = [("", "", family.ends(config))]
    for index in range(config.num_layers):
        layers.append((f"blk.{index}.", f"{LAYER}{index}.", family.layer(config, index)))
    for prefix, source, modules in layers:
        try:
            for module in modules:
                for one in (module, *module.instead):
                    yield from _of_module(base, prefix, source, one)
        except (ConfigError, UnsupportedError):
            continue  # of another model than the base


def _of_module(base: Base, prefix: str, source: str, module: Module) -> Iterator[tuple[str, Place]]:
    name, first = prefix + module.name, None
    fused = part_of_fused(base, name)
    if fused is not None:
        name, first, count = fused
        shape = base.shapes[name]
        if (*shape[:-2], count, shape[-1]) != module.shape:
            return
    elif base.shapes.get(name) != module.shape:
        return
    for form in module.forms:
        if form.blocks:
            # MXFP4 has the shape of the plain form but for the order of axes, which counts there.
            continue
        own = replace(form, names=tuple(source + one for one in form.names))
        place = Place(name, module.shape, own, module.permuted_heads, first=first)
        if len(own.names) == 1:
            yield own.names[0].removesuffix(".weight"), place
            continue
        for expert, one in enumerate(own.names):
            yield one.removesuffix(".weight"), replace(place, expert=expert)


def _config(base: Base, family: Family) -> HFConfig | None:
    """A configuration of the base's sizes in a family's words; None where it has no such models."""
    config, terms, experts = base.config, family.terms, base.config.experts
    may_lack = terms.experts is None or terms.experts.switch or terms.experts.optional
    if experts is None and not may_lack:
        return None
    if experts is not None and terms.experts is None:
        return None
    own = None
    if experts is not None:
        width = experts.intermediate_size or config.intermediate_size
        own = Experts(experts.num_experts, experts.num_experts_per_tok, width)
    windowed = tuple(config.window_of(layer, 0) > 0 for layer in range(config.num_layers))
    return HFConfig(
        values=Values({**terms.defaults, **_values(base)}, base.path),
        class_name=family.class_names[0], hidden_act="", hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size_of(0)
        or max(config.layer_intermediate_sizes, default=0),
        num_layers=config.num_layers,
        num_heads=config.num_heads, num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim_swa or config.head_dim, vocab_size=config.vocab_size,
        context_length=config.context_length, norm_eps=config.rms_norm_eps,
        rope=Rope(config.rope_theta, 1.0, Scaling(), None),
        sliding_window=config.sliding_window or 0, windowed=windowed, experts=own,
        tied=config.tie_word_embeddings, quantization=None,
    )  # fmt: skip


def _values(base: Base) -> dict[str, Any]:
    """What only some classes know, in their words."""
    config, experts, latent = base.config, base.config.experts, base.config.latent
    full = [i for i in range(config.num_layers) if not config.window_of(i, 0)]
    values: dict[str, Any] = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "vocab_size": config.vocab_size,
        "global_head_dim": config.head_dim,
        "num_global_key_value_heads": config.kv_heads_of(full[0]) if full else None,
        "attention_k_eq_v": bool(config.layer_kv_heads),
        "num_kv_shared_layers": config.shared_kv_layers,
        "hidden_size_per_layer_input": config.per_layer_input_size,
        "vocab_size_per_layer_input": config.vocab_size,
        "use_double_wide_mlp": bool(config.layer_intermediate_sizes),
    }
    if experts is not None:
        shared, width = experts.shared_intermediate_size, experts.intermediate_size
        values["shared_expert_intermediate_size"] = shared or None
        values["shared_intermediate_size"] = shared
        values["n_shared_experts"] = shared // width if width else 0
        values["first_k_dense_replace"] = experts.first_dense_layers
    if config.ssm is not None:
        values |= _states(config, config.ssm)
    if config.short_conv_kernel:
        values |= {
            "conv_L_cache": config.short_conv_kernel, "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": [i for i in range(config.num_layers) if config.kv_heads_of(i)],
            "num_dense_layers": experts.first_dense_layers if experts else None,
        }  # fmt: skip
    if latent is not None:
        values["q_lora_rank"] = latent.q_lora_rank or None
        values["kv_lora_rank"] = latent.kv_lora_rank
        values["qk_nope_head_dim"] = latent.key_dim - config.rope_dim
        values["qk_rope_head_dim"] = config.rope_dim
        values["v_head_dim"] = latent.value_dim
    return values


def _states(config: ModelConfig, ssm: SSMConfig) -> dict[str, Any]:
    """Recurrent layers in the words of the delta rule's classes and of Mamba-2's."""
    recurrent = config.recurrent_layers
    if config.layer_kv_heads:
        recurrent = tuple(not heads for heads in config.layer_kv_heads)
    kinds = ["linear_attention" if one else "full_attention" for one in recurrent]
    if config.architecture.startswith("nemotron_h"):  # a feed-forward is a layer of its own
        other = "mlp" if config.experts is None else "moe"
        widths = config.layer_intermediate_sizes
        kinds = [other if width else kind for width, kind in zip(widths, kinds, strict=True)]
    return {
        "layer_types": kinds or None,
        "linear_conv_kernel_dim": ssm.conv_kernel, "linear_key_head_dim": ssm.state_size,
        "linear_value_head_dim": ssm.head_dim, "linear_num_key_heads": ssm.num_groups,
        "linear_num_value_heads": ssm.num_heads,
        "mamba_d_conv": ssm.conv_kernel, "mamba_d_state": ssm.state_size,
        "mamba_n_groups": ssm.num_groups, "mamba_n_heads": ssm.num_heads,
        "mamba_expand": ssm.inner_size // config.hidden_size,
        "conv_kernel": ssm.conv_kernel, "ssm_state_size": ssm.state_size,
        "n_groups": ssm.num_groups, "mamba_num_heads": ssm.num_heads,
        "mamba_head_dim": ssm.head_dim,
    }  # fmt: skip
