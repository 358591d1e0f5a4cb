"""Tensors of quantized checkpoints that mean nothing where activations are not quantized."""

from __future__ import annotations

from trinity.formats.checkpoint import Checkpoint

_ACTIVATIONS = (
    ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale",
    ".output_zero_point", ".activation_scale", ".input_activation_scale",
)  # fmt: skip
_CACHE = (".k_scale", ".v_scale", ".q_scale", ".k_zero_point", ".v_zero_point")


def ignored(checkpoint: Checkpoint) -> tuple[set[str], tuple[str, ...]]:
    """Return the names of ignored tensors, and notes for the user."""
    names = checkpoint.names()
    cache = {name for name in names if name.endswith(_CACHE)}
    notes = (
        (
            f"{len(cache)} scales for a quantized KV cache are not used; --kv-type sets the "
            "type of trinity's cache",
        )
        if cache
        else ()
    )
    return {name for name in names if name.endswith(_ACTIVATIONS)} | cache, notes
