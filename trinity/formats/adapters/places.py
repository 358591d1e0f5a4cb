"""Find the tensors that transformers' modules correspond to, by the families' tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.adapters.adapter import Base
from trinity.formats.huggingface.family import LAYER, Family
from trinity.formats.huggingface.stored import Stored, rows
from trinity.formats.huggingface.table import TableRow, table_rows
from trinity.formats.huggingface.values import Values

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
# GGUF tensors that may replace others, and modules that may do the same.
_FUSED = {
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
}
_TOGETHER = (
    ("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
)


@dataclass(frozen=True, slots=True)
class TargetModule:
    """A tensor that a module corresponds to: all of it, the matrix of one expert, or some rows."""

    name: str
    shape: tuple[int, ...]  # of the module's part of the tensor
    stored: Stored  # where the module's weight stores it
    heads: int = 0  # of which GGUF permutes the rows
    expert: int | None = None
    first: int | None = None  # first row of the tensor, if the module has only some rows


def places_of(base: Base) -> dict[str, list[TargetModule]]:
    """Return the tensors of every module of the base that an adapter may change."""
    modules: dict[str, list[TargetModule]] = {}
    known: set[str] = set()
    for family in base.families:
        new = set()
        for module, place in _of_family(base, family):
            if place.name in known:
                continue
            places = modules.setdefault(module, [])
            # Stored forms whose names differ only in ".weight" are one module.
            taken = {(target.name, target.first) for target in places}
            if not taken & {(place.name, None), (place.name, place.first)}:
                places.append(place)
                new.add(place.name)
        known |= new
    _add_other_names(modules, base.families)
    for layer in range(base.config.num_layers):
        for whole, parts in _TOGETHER:
            names = [f"{LAYER}{layer}.{part}" for part in parts]
            _add_other_form(base, modules, f"{LAYER}{layer}.{whole}", names)
    modules["lm_head"] = [TargetModule(HEAD, base.shapes[HEAD], Stored(("lm_head",)))]
    return modules


def _add_other_names(modules: dict[str, list[TargetModule]], families: Sequence[Family]) -> None:
    """Add the names of checkpoints that use another prefix than the families' tables."""
    own = dict(modules)
    for before, stands_for in dict.fromkeys(pair for family in families for pair in family.renames):
        for module in [name for name in own if name.startswith(stands_for)]:
            modules.setdefault(before + module.removeprefix(stands_for), modules[module])


def part_of_fused(base: Base, name: str) -> tuple[str, int, int] | None:
    """Return the fused tensor that contains the rows of ``name``, its first row and their number.

    Converters may fuse queries, keys and values, and the experts' gate and up.
    """
    prefix, _, part = name.removesuffix(".weight").rpartition(".")
    fused = next((whole for whole, parts in _FUSED.items() if part in parts), "")
    whole = f"{prefix}.{fused}.weight"
    if not fused or name in base.shapes or whole not in base.shapes:
        return None
    sizes = _sizes(base, whole, len(_FUSED[fused]), base.shapes[whole][-2])
    number = _FUSED[fused].index(part)
    return whole, sum(sizes[:number]), sizes[number]


def _sizes(base: Base, name: str, parts: int, total: int) -> tuple[int, ...]:
    """Return the number of rows of gate and up, or of queries, keys and values, of a layer.

    ``name``: of a tensor or of a module, with the layer's number.
    """
    if parts == 2:
        return total // 2, total // 2
    layer, config = int(next(part for part in name.split(".") if part.isdigit())), base.config
    heads = config.heads_of(layer) if layer < config.num_layers else config.num_heads
    query = heads * config.head_dim
    return query, (total - query) // 2, (total - query) // 2


def _add_other_form(
    base: Base, targets: dict[str, list[TargetModule]], whole: str, parts: Sequence[str]
) -> None:
    """Add the parts of a module that fuses several, or the module that fuses these parts."""
    own = [targets.get(part, []) for part in parts]
    if whole in targets and not any(own):
        (place,), first = targets[whole], 0
        rows_in_all, width = place.shape
        for part, size in zip(parts, _sizes(base, whole, len(parts), rows_in_all), strict=True):
            targets[part] = [
                replace(place, shape=(size, width), stored=Stored((part,)), first=first)
            ]
            first += size
    elif whole not in targets and all(len(places) == 1 for places in own):
        places = [place for (place,) in own]
        ends = [*accumulate((place.shape[0] for place in places[:-1]), initial=0), None]
        targets[whole] = [
            replace(place, stored=Stored((whole,), rows(first or 0, end)))
            for place, (first, end) in zip(places, pairwise(ends), strict=True)
        ]


def _of_family(base: Base, family: Family) -> Iterator[tuple[str, TargetModule]]:
    values = Values(family.defaults, base.path)
    try:
        ends, layer = (
            table_rows(part, base.config, values) for part in (family.ends, family.layer)
        )
    except (ConfigError, UnsupportedError):
        return  # belongs to another model than the base
    groups = [(f"blk.{i}.", f"{LAYER}{i}.", layer) for i in range(base.config.num_layers)]
    for prefix, source, table in [("", "", ends), *groups]:
        yield from _of_table(base, prefix, source, table)


def _of_table(
    base: Base, prefix: str, source: str, table: Mapping[str, TableRow]
) -> Iterator[tuple[str, TargetModule]]:
    for part, entry in table.items():
        name, first = prefix + part, None
        fused = part_of_fused(base, name)
        if fused is not None:
            name, first, count = fused
            whole = table.get(name.removeprefix(prefix))
            if whole is not None and whole.forms[0].parts:
                continue  # another tensor of that name: queries, keys and values of a delta rule
            shape = (*base.shapes[name][:-2], count, base.shapes[name][-1])
        elif name in base.shapes:
            shape = base.shapes[name]
        else:
            continue
        heads = 0
        if entry.permuted:
            heads = base.config.num_heads if "attn_q" in part else base.config.num_kv_heads
        for form in entry.forms:
            if form.blocks:
                # MXFP4 has the shape of the plain form with another order of axes.
                continue
            module = source + form.names[0].removesuffix(".weight")
            if "{}" not in module:
                yield module, TargetModule(name, shape, form, heads, first=first)
                continue
            for expert in range(shape[0]):
                place = TargetModule(name, shape[1:], form, heads, expert, first)
                yield module.format(expert), place
