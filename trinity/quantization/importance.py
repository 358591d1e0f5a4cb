"""The importance of a weight's columns, from an importance matrix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.formats.imatrix import Imatrix, read_imatrix
from trinity.quantization.assignment import Assigned
from trinity_kernels.quantizers import SEARCHED

Floats = NDArray[np.float32]


class Importance:
    """An importance matrix for the tensors of a model."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._imatrix: Imatrix = read_imatrix(path)

    def columns(self, name: str, shape: tuple[int, ...]) -> list[Floats | None]:
        """Return float32 (K,) for each matrix in a tensor, or None.

        It is None without an entry, or if all inputs of the text were 0. Values are scaled by a
        power of two so that the largest is between 0.5 and 1: sums of products must stay in
        float32's range, and no result depends on the scale. Raises InputError for an entry of
        another size. An embedding's entry is ignored, as in llama.cpp: its rows are not multiplied.
        """
        matrices, size = prod(shape[:-2]), shape[-1]
        means = self._imatrix.mean(name)
        if means is None:
            return [None] * matrices
        if means.size == matrices * size:  # older files have the matrices one after another
            return [_scaled(row) if row.any() else None for row in means.reshape(matrices, size)]
        if name == "token_embd.weight":
            return [None]
        columns = f"{size} columns" if matrices == 1 else f"{matrices} matrices of {size} columns"
        raise InputError(
            f"{self.path}: the entry of {name!r} has {means.size} values, but the tensor has "
            f"{columns}; the importance matrix belongs to another model"
        )

    def keys(self) -> dict[str, object]:
        """The metadata keys that llama.cpp's tool writes about the matrix."""
        imatrix = self._imatrix
        keys: dict[str, object] = {"quantize.imatrix.file": self.path}
        if imatrix.datasets:
            keys["quantize.imatrix.dataset"] = imatrix.datasets[0]
        keys["quantize.imatrix.entries_count"] = len(imatrix.entries)
        if imatrix.chunk_count:
            keys["quantize.imatrix.chunks_count"] = imatrix.chunk_count
        return keys

    def notes(self, quantized: Sequence[Assigned]) -> list[str]:
        """Notes for the user. Raises InputError if no entry belongs to the model."""
        expected = [
            a.entry
            for a in quantized
            if a.type in SEARCHED and a.entry.name not in ("token_embd.weight", "output.weight")
        ]
        missing = [
            e.name
            for e in expected
            if not any(row is not None for row in self.columns(e.name, e.shape))
        ]
        if expected and len(missing) == len(expected):
            raise InputError(
                f"{self.path}: has no entry for any tensor of this model, such as {missing[0]!r}; "
                "it belongs to another model"
            )
        notes = []
        if missing:
            notes.append(
                f"{self.path} has no entry for {len(missing)} of {len(expected)} tensors, which "
                f"are quantized without: {missing[0]}" + (", ..." if len(missing) > 1 else "")
            )
        unseen = self._imatrix.unseen_experts
        if unseen:
            layer, expert = unseen[0]
            notes.append(
                f"{self.path}: no token of its text used {len(unseen)} experts, such as expert "
                f"{expert} of {layer}: they are quantized as if all their inputs were equally "
                "important"
            )
        return notes


def _scaled(means: Floats) -> Floats:
    scaled: Floats = np.ldexp(means, -np.frexp(means.max())[1])
    return scaled
