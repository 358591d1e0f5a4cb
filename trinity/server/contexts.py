"""The context of a served model: its own limit, what the command line asks for, what memory has."""

from __future__ import annotations

from trinity.errors import TrinityError
from trinity.loading import open_weights
from trinity.models import find_architecture
from trinity.runtime.engine_building import MEMORY_SHARE, USUAL_CONTEXT
from trinity.runtime.paging import available_memory
from trinity.tools.recommend import of_file
from trinity_kernels.ops.kv_layout import PAGE


def context_limit(ref: str) -> int:
    """The longest context that a model was made for."""
    provider = open_weights(ref)
    try:
        return provider.config.context_length
    finally:
        provider.close()


def usual_context(ref: str, memory: int | None = None) -> int | None:
    """The context of a model for which none was asked for.

    It is the model's own limit, if keys and values of so many tokens have room in a quarter of
    ``memory`` in float32; else as many tokens as have, and at least 4096. ``memory``: bytes, by
    default the free memory. None, the engine's own default, is the context of encoders and of
    models with two sets of rotary factors, which depend on the context, and of files that cannot
    be read: loading reports the error.
    """
    provider = open_weights(ref)
    try:
        config, names = provider.config, provider.tensor_names()
        if find_architecture(config.architecture, provider.path, names).encodes:
            return None
        if any("rope_factors_long" in name for name in names):
            return None
        per_token = 2 * of_file(provider).kv_bytes_per_token  # of float32
    except TrinityError:
        return None
    finally:
        provider.close()
    share = (available_memory() if memory is None else memory) // MEMORY_SHARE
    if per_token * config.context_length <= share:
        return config.context_length
    return min(config.context_length, max(USUAL_CONTEXT, int(share / per_token) // PAGE * PAGE))
