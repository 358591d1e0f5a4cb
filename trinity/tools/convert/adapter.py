"""Convert a LoRA adapter of PEFT or mlx-lm to a GGUF file for llama.cpp."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trinity.errors import InputError
from trinity.formats.adapters import LoraAdapter, Pair, open_adapter
from trinity.formats.adapters.adapter import TYPES, as_float32
from trinity.formats.gguf_writer import GGUFWriter, refuse_existing
from trinity.formats.huggingface.files import model_name
from trinity.formats.mapping import path_text
from trinity.loading import open_weights
from trinity.models import decoder_of, families_of
from trinity.models.adapter_base import base_of
from trinity.tools.convert.conversion import Conversion


def convert_adapter(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    notice: Callable[[str], None] = lambda line: None,
) -> Conversion:
    """Convert the adapter at ``source``, which belongs to ``model``, to the GGUF file ``path``.

    Elements keep their type. The format has one alpha for all pairs; the second matrices of pairs
    with another alpha are rescaled in float32. ``notice`` is called with lines about the model for
    the user.

    Raises InputError for a missing file and for a ``path`` that exists unless ``overwrite`` is set;
    as ``open_adapter`` for an adapter that is invalid or does not fit.
    """
    target = path_text(path)
    if os.path.isdir(target):
        raise InputError(f"{target}: this is a directory; give the name of the .gguf file to write")
    refuse_existing(target, overwrite)
    provider = open_weights(model, notice=notice)
    try:
        names = frozenset(provider.tensor_names())
        decoder = decoder_of(
            provider.config, names, lambda name: provider.tensor(name).shape, provider.path
        )
        base = base_of(decoder, provider, families_of(decoder.config.architecture))
        # The rows are in GGUF's order, whatever that of the opened model.
        adapter = open_adapter(source, replace(base, permuted=True))
    finally:
        provider.close()
    alpha = common_alpha(adapter)
    keys = {
        "general.architecture": provider.config.architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.name": model_name(adapter.path),
        "adapter.lora.alpha": alpha,
    }
    rescaled = 0
    with GGUFWriter(target) as writer:
        for key, value in keys.items():
            writer.add(key, value)
        for pair in adapter.pairs:
            same = with_alpha(pair, alpha)
            rescaled += same is not pair
            for end, array in (("a", same.a), ("b", same.b)):
                writer.add_tensor(
                    f"{pair.name}.lora_{end}",
                    array.shape,
                    TYPES[str(array.dtype)],
                    array.reshape(-1).view(np.uint8),
                )
    notes: tuple[str, ...] = ()
    if rescaled:
        notes = (
            f"the scale of {rescaled} pairs differs from that of alpha {alpha:g}; their lora_b "
            "was multiplied by the difference",
        )
    size = os.path.getsize(target)
    return Conversion(target, provider.config.architecture, 2 * len(adapter.pairs), size, notes)


def alpha_of(pair: Pair) -> float:
    """Return the alpha that gives a pair's scale."""
    return float(np.float32(pair.scale * pair.b.shape[-1]))


def common_alpha(adapter: LoraAdapter) -> float:
    """Return the most frequent alpha that is not 0, which means a scale of 1."""
    alphas = Counter(alpha for alpha in map(alpha_of, adapter.pairs) if alpha)
    return alphas.most_common(1)[0][0] if alphas else 1.0


def with_alpha(pair: Pair, alpha: float) -> Pair:
    """Rescale a pair for a file with that ``alpha``."""
    own = alpha_of(pair)
    if own == alpha:
        return pair
    b = as_float32(pair.b) * np.float32(own / alpha)
    return replace(pair, b=b, scale=alpha / pair.b.shape[-1])
