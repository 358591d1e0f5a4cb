"""Refuse weights that were stored after a rotation, such as PrismML's ``prism.hadamard.*``.

Each product with such a weight needs its input rotated in the same way. Without that, a model runs
and writes nonsense. Source: PrismML-Eng's llama.cpp fork, the keys of Ternary-Bonsai-2-27B.
"""

from __future__ import annotations

from collections.abc import Iterable

from trinity.errors import UnsupportedError

_PREFIX = "prism."


def refuse_rotated(keys: Iterable[str], source: str) -> None:
    """Raise UnsupportedError if one of a GGUF file's ``keys`` says that its weights are rotated."""
    key = next((key for key in keys if key.startswith(_PREFIX)), None)
    if key is not None:
        raise UnsupportedError(
            f"{source}: the key {key!r} says that the weights were rotated by a Hadamard transform,"
            " which is not supported: without the rotation the model would write nonsense; use a"
            " file of this model without rotation"
        )
