"""Canonical names of tensors, which are GGUF's."""

from __future__ import annotations


def complete(name: str) -> str:
    """Return a tensor's name within its layer, with the suffix ".weight" if it has none."""
    if name.endswith("."):
        return name[:-1]
    return name if name.endswith((".weight", ".bias", ".scale")) else f"{name}.weight"


def beside(name: str, what: str) -> str:
    """Return the name of the "bias" or "scale" that belongs to a weight."""
    return f"{complete(name).removesuffix('.weight')}.{what}"
