"""A sketch of the output head gives the logits of the full product, on real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import GetModel
from tests.real.texts import prose
from trinity.loading import load
from trinity.runtime.interface import Best, Rows
from trinity.runtime.sampling.distribution import best
from trinity_kernels.isa import available_levels

NONE = np.empty(0, np.int64)
TOKENS = [64, pytest.param(4096, marks=pytest.mark.full)]


@pytest.fixture(params=["gemma3-270m", "smollm2"])
def path(request: pytest.FixtureRequest, real_model: GetModel) -> Path:
    return real_model(request.param)


@pytest.mark.skipif(available_levels() == ("portable",), reason="portable has no sketches")
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("count", TOKENS)
def test_logits_have_the_bits_of_the_full_product(path: Path, count: int, rows: int) -> None:
    with (
        load(path, head_sketch="on", context_length=4096) as sketched,
        load(path, head_sketch="off", context_length=4096) as full,
    ):
        tokens = (sketched.tokenize(prose()) * 4)[:count]
        length, engines = len(tokens) // rows, (sketched.engine, full.engine)
        caches = [[engine.new_cache() for _ in range(rows)] for engine in engines]
        computed = 0.0
        for position in range(length):
            needs = [Best((1, 40)[(position + row) % 2], NONE) for row in range(rows)]
            new = [tokens[row * length + position] for row in range(rows)]
            ours = engines[0].step(
                [Rows(c, [t], best=n) for c, t, n in zip(caches[0], new, needs, strict=True)]
            )
            theirs = engines[1].step([Rows(c, [t]) for c, t in zip(caches[1], new, strict=True)])
            known = ours > -np.inf
            assert np.array_equal(ours[known].view("i4"), theirs[known].view("i4"))
            for row, need in enumerate(needs):
                assert np.array_equal(best(ours[row], need.count), best(theirs[row], need.count))
            computed += float(known.mean())
        if "gemma" in str(path):  # most steps of SmolLM2 take the full product
            assert computed < 0.5 * length
