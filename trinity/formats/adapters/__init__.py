"""LoRA adapters of every format: a GGUF file, PEFT's directory, mlx-lm's directory."""

from __future__ import annotations

import os

import numpy as np

from trinity.errors import FormatError, InputError, UnsupportedError
from trinity.formats.adapters.adapter import Base, LoraAdapter, Pair
from trinity.formats.json_object import read_json_object
from trinity.formats.mapping import path_text

__all__ = ["Base", "LoraAdapter", "Pair", "open_adapter"]

CONFIG = "adapter_config.json"
PEFT_WEIGHTS, MLX_WEIGHTS = "adapter_model.safetensors", "adapters.safetensors"
_PICKLES = ("adapter_model.bin", "adapter_model.pt")


@np.errstate(over="ignore")  # values that become infinite are rejected later
def open_adapter(path: str | os.PathLike[str], base: Base) -> LoraAdapter:
    """Read the adapter at ``path`` into memory; its file is not used afterwards.

    ``path`` is a GGUF file, a directory of PEFT or mlx-lm (recognized by its configuration), or a
    .safetensors file of such a directory. Raises InputError if it does not exist, UnsupportedError
    if it is not a LoRA or not linear, FormatError if it is damaged or does not fit the base.
    """
    place = path_text(path)
    if not os.path.isdir(place) and not place.endswith(".safetensors"):
        from trinity.formats.adapters.gguf import read_gguf_adapter

        return read_gguf_adapter(place, base)
    directory = place if os.path.isdir(place) else os.path.dirname(place)
    source = os.path.join(directory, CONFIG)
    if not os.path.lexists(source):
        raise InputError(_no_config(place, directory))
    config = read_json_object(source)
    is_mlx = "peft_type" not in config and {"fine_tune_type", "lora_parameters"} & config.keys()
    if not is_mlx and "peft_type" not in config:
        raise FormatError(
            f"{source}: it has neither peft_type (PEFT) nor lora_parameters (mlx-lm); expected "
            "the configuration of a LoRA adapter"
        )
    weights = place
    if place == directory:
        weights = os.path.join(directory, MLX_WEIGHTS if is_mlx else PEFT_WEIGHTS)
        _check_pickle(directory, weights)
    if is_mlx:
        from trinity.formats.adapters.mlx import read_mlx

        return read_mlx(place, config, source, weights, base)
    from trinity.formats.adapters.peft import read_peft

    return read_peft(place, config, source, weights, base)


def _check_pickle(directory: str, weights: str) -> None:
    if os.path.lexists(weights):
        return
    for name in _PICKLES:
        if os.path.lexists(os.path.join(directory, name)):
            raise UnsupportedError(
                f"{os.path.join(directory, name)}: a pickle file, which can run arbitrary code, "
                "is not read; save the adapter again with safe_serialization=True"
            )


def _no_config(place: str, directory: str) -> str:
    if not os.path.isdir(directory or "."):
        return f"{place}: there is no such file; check the path"
    names = sorted(name for name in os.listdir(directory or ".") if name.endswith(".gguf"))
    hint = f"; it contains {', '.join(names[:3])}: give that file" if names else ""
    return f"{place}: there is no {CONFIG} in {directory or 'the current folder'}{hint}"
