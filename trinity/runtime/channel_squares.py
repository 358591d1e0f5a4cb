"""Where an engine gathers the squares of its linears' inputs, channel by channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.weights import Weight

HEAD = "output.weight"


class ChannelSquares:
    """A buffer for every input that linears have; those that share an input share the buffer.

    Layers' weights are wanted, and the output head's with ``process_output`` where it is a matrix
    of its own. A buffer is as ``trinity_kernels.ops.squares`` fills it, (K + 1,) float64.
    """

    def __init__(self, process_output: bool = False) -> None:
        self._process_output = process_output
        self._buffers: dict[tuple[str, ...], NDArray[np.float64]] = {}

    def buffer(self, weights: list[Weight]) -> NDArray[np.float64] | None:
        """The buffer of the input that ``weights`` share, None where none of them is wanted."""
        names = tuple(f"{weight.name}.weight" for weight in weights)
        if not names[0].startswith("blk.") and not (self._process_output and names == (HEAD,)):
            return None
        if names not in self._buffers:
            self._buffers[names] = np.zeros(weights[0].k + 1)
        return self._buffers[names]

    def take(self) -> dict[str, tuple[NDArray[np.float64], int]]:
        """Sums (K,) and the number of rows for every weight, which begin at zero again.

        Weights that share an input share the array.
        """
        taken = {}
        for names, buffer in self._buffers.items():
            found = buffer[:-1].copy(), int(buffer[-1])
            taken.update(dict.fromkeys(names, found))
            buffer[:] = 0
        return taken
