"""mlx-lm's adapters: adapter_config.json and adapters.safetensors.

Names are those of transformers without a prefix. Shapes: lora_a (in, r) and lora_b (r, out); for
experts (E, r, in) and (E, out, r); for an embedding (tokens, r) and (r, width). The scale in the
configuration is the factor itself. Source: mlx-lm tuner/lora.py and tuner/utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from trinity.errors import FormatError, UnsupportedError
from trinity.formats.adapters.adapter import Base, Elements, LoraAdapter
from trinity.formats.adapters.modules import NamedPair, placed, tied_output
from trinity.formats.adapters.peft import both_halves
from trinity.formats.huggingface.values import shown
from trinity.formats.safetensors import SafeTensor, SafeTensorsFile

_HALF = re.compile(r"(.+)\.lora_([ab])")


def read_mlx(
    path: str, config: Mapping[str, object], source: str, weights: str, base: Base
) -> LoraAdapter:
    """Read an adapter; arguments and errors are those of ``read_peft``."""
    kind = config.get("fine_tune_type", "lora")
    if kind != "lora":
        what = {"dora": "DoRA, which scales the whole weight", "full": "whole tensors"}
        meant = f": {what[kind]}" if isinstance(kind, str) and kind in what else ""
        raise UnsupportedError(
            f"{source}: fine_tune_type is {shown(kind)}{meant}, which is not supported; trinity "
            "applies adapters of type lora: fuse this one with mlx_lm.fuse"
        )
    parameters = config.get("lora_parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if not isinstance(scale, int | float) or isinstance(scale, bool) or abs(scale) > 1e9:
        raise FormatError(
            f"{source}: lora_parameters has the scale {shown(scale)}; expected a number"
        )
    with SafeTensorsFile(weights) as file:
        pairs = placed(base, weights, list(_pairs(file, float(scale))))
    # A tied output is the same module as the embedding.
    return LoraAdapter(path, tied_output(base, pairs))


def _pairs(file: SafeTensorsFile, scale: float) -> Iterator[NamedPair]:
    halves: dict[str, dict[str, SafeTensor]] = {}
    for name in file.names():
        match = _HALF.fullmatch(name)
        if match is None:
            what = "DoRA" if name.endswith(".m") else "not part of a pair"
            raise UnsupportedError(
                f"{file.path}: tensor {name!r} is {what}, which is not supported; trinity applies "
                "pairs of matrices: fuse the adapter with mlx_lm.fuse"
            )
        halves.setdefault(match[1], {})[match[2]] = file.tensor(name)
    for module, tensors in halves.items():
        kind, a, b = _oriented(module, *both_halves(tensors, "a", "b"))
        yield NamedPair(module, kind, a, b, scale, f"{file.path}: {module[:100]!r}")


def _oriented(
    module: str, a: Elements, b: Elements
) -> tuple[Literal["linear", "embedding", "experts"], Elements, Elements]:
    if a.ndim == 3:
        return "experts", a, b
    if module.rpartition(".")[2].startswith(("embed_tokens", "embeddings")):
        return "embedding", a, b.T
    return "linear", a.T, b.T
