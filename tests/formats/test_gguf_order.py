"""A provider's tensors in GGUF's order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from trinity.formats.gguf_order import GGUFOrder
from trinity.formats.made_tensor import MadeTensor
from trinity.formats.provider import Tensor, WeightProvider
from trinity.loading import demo_model, open_weights
from trinity_kernels.quants import TYPES


class Experts:
    """A provider whose experts have separate tensors."""

    rope_interleaved = True
    path = "experts"
    paths = (path,)

    def __init__(self, values: NDArray[np.float32], types: list[str]) -> None:
        self._values, self._types = values, types
        self.metadata: dict[str, object] = {}
        with closing(open_weights(demo_model())) as demo:
            self.config = demo.config

    def tensor_names(self) -> list[str]:
        return [f"blk.0.ffn_up_exps.{number}.weight" for number in range(len(self._types))]

    def tensor(self, name: str) -> Tensor:
        number = int(name.split(".")[3])
        values, type_name = self._values[number], self._types[number]

        def make() -> Iterator[NDArray[np.generic]]:
            yield TYPES[type_name].quantize(values)

        return MadeTensor(name, values.shape, type_name, make)


@pytest.mark.parametrize(
    ("types", "stacked"),
    [
        (["F16", "F16", "F16"], "F16"),
        (["F16", "BF16", "F16"], "F32"),  # of one size: their bytes would pass for each other's
        (["BF16", "F32", "Q8_0"], "F32"),
    ],
)
def test_a_stack_of_experts_has_the_values_of_each(types: list[str], stacked: str) -> None:
    values = np.random.default_rng(7).integers(-127, 128, (3, 4, 32)).astype(np.float32)
    values[:, :, 0] = 127  # so that every type holds all of them exactly
    provider: Any = Experts(values, types)
    model = GGUFOrder(cast(WeightProvider, provider))
    assert model.tensor_names() == ["blk.0.ffn_up_exps.weight"]
    tensor = model.tensor("blk.0.ffn_up_exps.weight")
    assert (tensor.type, tensor.shape) == (stacked, (3, 4, 32))
    assert np.array_equal(tensor.dequantize(), values)
