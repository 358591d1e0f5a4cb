"""Format sizes and counts for people."""

from __future__ import annotations

UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def size_text(nbytes: int) -> str:
    """Format a size in GB, or in MB if it is small."""
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e8 else f"{nbytes / 1e6:.2f} MB"


def count_text(parameters: float) -> str:
    """Format a number of parameters as in models' names: "7B", "360M"."""
    unit = next((u for u in ("T", "B", "M") if parameters >= UNITS[u]), "K")
    return f"{float(f'{parameters / UNITS[unit]:.3g}'):g}{unit}"
