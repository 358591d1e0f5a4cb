"""Tables of positions and text types, read by row without a float32 copy of the table."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from tests.kernels.reference import random_weights
from tests.runtime.test_weights import Tensors
from trinity.formats.provider import Tensor, WeightProvider
from trinity.models.architecture import AddedRowNames as Names
from trinity.models.decoder import Decoder
from trinity.runtime.added_rows import AddedRows
from trinity.runtime.weights import Weights

WIDTH, POSITIONS = 256, 5000


@pytest.mark.parametrize("type_name", ["F32", "F16", "Q8_0", "Q2_K"])
def test_rows_are_those_of_the_file_and_the_table_is_not_copied(type_name: str) -> None:
    rng = np.random.default_rng(7)
    tensors = {
        name: Tensor(name, shape, type_name, random_weights(rng, type_name, *shape))
        for name, shape in (
            ("position_embd.weight", (POSITIONS, WIDTH)),
            ("token_types.weight", (2, WIDTH)),
        )
    }
    positions, texts = (tensor.dequantize() for tensor in tensors.values())
    config = SimpleNamespace(context_length=POSITIONS, hidden_size=WIDTH)
    architecture = SimpleNamespace(added_rows=Names("position_embd", "token_types"))
    decoder = cast(Decoder, SimpleNamespace(config=config, architecture=architecture))
    weights = Weights(cast(WeightProvider, Tensors(tensors)))

    tracemalloc.start()
    added = AddedRows(weights, decoder, POSITIONS)
    x = rng.standard_normal((4, WIDTH)).astype(np.float32)
    at, second = np.array([0, 4999, 17, 17], np.int32), np.array([0, 1, 1, 2])
    expected = x + positions[at] + texts[[0, 1, 1, 1]]
    added.add(x, at, second)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert np.array_equal(x, expected)
    assert most < positions.nbytes / 10
