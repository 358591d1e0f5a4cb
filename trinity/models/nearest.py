"""Suggests similar families for a model whose architecture is unknown.

Families are compared by the names of the layers' tensors only, because the file's keys may be
specific to its own architecture.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches

from trinity.config import ModelConfig
from trinity.errors import TrinityError
from trinity.formats.config_limits import examples
from trinity.models.architecture import Architecture
from trinity.models.decoder import Decoder

_KIND = re.compile(r"blk\.\d+\.(.+?)(?:\.\d+)?(?:\.weight|\.bias|\.scale)?")
_LAYERS = 3  # kinds of layers: with a recurrent state, with attention, with neither
_OF_ALL = ("latent", "logit_scale", "sliding_window", "sliding_window_pattern")
_MOST_SHOWN, _MOST_NEAR = 8, 4
_MOST_KINDS = 1 << 11  # names that are compared; models have about 30
_LONGEST_NAME = (
    64  # characters of a name that are compared, because a hostile file may have very long names
)


def nearest(name: str, names: Collection[str], architectures: Mapping[str, Architecture]) -> str:
    """Describe which families are similar to the architecture ``name``, by name or tensors.

    Also names the kinds of tensors that no family reads, which trinity lacks. Empty if there is
    nothing to say.
    """
    close = get_close_matches(name[:_LONGEST_NAME].lower(), architectures, n=3)
    said = [f"near in name: {', '.join(close)}"] if close else []
    kinds = _kinds(names)
    if not 0 < len(kinds) <= _MOST_KINDS:
        return "; ".join(said)
    read = {other: _read(other_kinds, kinds) for other, other_kinds in architectures.items()}
    least = min(len(kinds ^ other_kinds) for other_kinds in read.values())
    best = [other for other, other_kinds in read.items() if len(kinds ^ other_kinds) == least]
    ranks = {name: rank for rank, name in enumerate([*close, "llama"])}
    best.sort(key=lambda other: (ranks.get(other, len(ranks)), other))
    unknown = kinds - {kind for kinds_read in read.values() for kind in kinds_read}
    unread, missing = kinds - read[best[0]] - unknown, read[best[0]] - kinds
    said.append(f"nearest by its tensors: {', '.join(best[:_MOST_NEAR])}")
    if not least:
        said[-1] += ", which may compute something else of them"
    if unread:
        said.append(f"{best[0]} does not read {_listed(unread)}")
    if missing:
        said.append(f"{best[0]} needs {_listed(missing)}")
    if unknown:
        said.append(f"no family of trinity reads {_listed(unknown)}")
    return "; ".join(said)


def _kinds(names: Collection[str]) -> set[str]:
    """Tensor names without the layer's number, an expert's number, and the suffix."""
    matches = (_KIND.fullmatch(name) for name in names)
    return {match[1] for match in matches if match}


def _read(architecture: Architecture, kinds: Collection[str]) -> set[str]:
    """The kinds of tensors that a family's layers read of a file that has ``kinds``."""
    names = {
        f"blk.{index}.{kind}.{what}"
        for kind in kinds
        for index in range(_LAYERS)
        for what in ("weight", "bias")
    }
    try:
        decoder = Decoder(architecture, _config(architecture, kinds), names)
    except TrinityError:  # the family cannot describe a model of this form
        return set()
    optional = {name for name in decoder.optional_tensors() if name in names}
    return _kinds({*decoder.tensors(), *optional})


def _config(architecture: Architecture, kinds: Collection[str]) -> ModelConfig:
    """A small model of a family with its needed fields and the features of ``kinds``."""
    needed = {*_OF_ALL, *architecture.needs}
    if "ffn_gate_inp" in kinds:
        needed.add("experts")
    values = examples(needed, _LAYERS)
    values["latent"] = replace(values["latent"], q_lora_rank=2 * ("attn_q_a" in kinds))
    if "experts" in values:
        values["experts"] = replace(
            values["experts"],
            shared_intermediate_size=2 * ("ffn_down_shexp" in kinds),
            first_dense_layers="ffn_down" in kinds,
        )
    values["per_layer_input_size"] = 2 * ("inp_gate" in kinds)
    return ModelConfig(
        architecture=architecture.names[0], hidden_size=4, intermediate_size=4,
        num_layers=_LAYERS, num_heads=2, num_kv_heads=2, head_dim=2, vocab_size=2,
        context_length=2, rms_norm_eps=1e-5, rope_dim=2, recurrent_layers=(True, False, False),
        layer_kv_heads=(0, 2, 2) if architecture.mixed else (),
        layer_intermediate_sizes=(0, 0, 4) if architecture.mixed else (), **values,
    )  # fmt: skip


def _listed(kinds: Collection[str]) -> str:
    shown = ", ".join(f"{kind[:60]!r}" for kind in sorted(kinds)[:_MOST_SHOWN])
    return f"{shown} and {len(kinds) - _MOST_SHOWN} more" if len(kinds) > _MOST_SHOWN else shown
