"""Canonical names of tensors, which are GGUF's."""

from __future__ import annotations


def complete(name: str) -> str:
    """A tensor's whole name, without the prefix of its layer."""
    if name.endswith("."):
        return name[:-1]
    return name if name.endswith((".weight", ".bias", ".scale")) else f"{name}.weight"


def beside(name: str, what: str) -> str:
    """The name of the "bias" or "scale" that belongs to a weight."""
    return f"{complete(name).removesuffix('.weight')}.{what}"
